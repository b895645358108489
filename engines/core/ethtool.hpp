// The speeds that an Ethernet adapter supports, from its driver (ETHTOOL_GLINKSETTINGS, shown by
// ethtool as "Supported link modes"). /sys has only the negotiated speed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace assay {

// The speed of the fastest mode in a bit mask of the kernel's link modes (linux/ethtool.h), in
// bit/s; none if the mask holds no mode whose speed is known here.
std::optional<double> fastest_of(std::span<const std::uint32_t> modes);

// The fastest mode that an interface of this host supports, in bit/s; none if its driver does not
// report modes, or if $ASSAY_ROOT replaces /sys (in tests).
std::optional<double> fastest_link_mode(const std::string& interface);

}  // namespace assay
