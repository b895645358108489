// What an Ethernet adapter can do, as its driver tells it (ETHTOOL_GLINKSETTINGS, what ethtool
// shows as "Supported link modes"). /sys has the negotiated speed only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace assay {

// The fastest mode among a bit mask of the kernel's link modes (linux/ethtool.h), in bit/s; none if
// it holds no mode with a speed that is known here.
std::optional<double> fastest_of(std::span<const std::uint32_t> modes);

// The fastest mode that an interface of this host supports, in bit/s; none if its driver does not
// tell, or if /sys is planted ($ASSAY_ROOT).
std::optional<double> fastest_link_mode(const std::string& interface);

}  // namespace assay
