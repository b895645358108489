// What went over each network port of this host, by the kernel's own counters (sysfs): the proof of
// which adapter carried the bytes, and that no MPI went round the network.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace assay::network {

// {device, counter} -> value. Devices are network interfaces ("eth0") and InfiniBand ports
// ("mlx5_0:1"); loopback is left out. port_*_data is in bytes (the hardware counts units of four).
using Counters = std::map<std::pair<std::string, std::string>, std::uint64_t>;

Counters read_counters();

// What has changed; a counter that went backwards (reset, or wrapped) is left out.
Counters difference(const Counters& before, const Counters& after);

// Bytes sent: over InfiniBand ports and over interfaces that have no other below them (a bond or
// bridge would count its members' bytes twice) and are not the IP face of an InfiniBand port.
std::uint64_t bytes_on_the_wire(const Counters& difference);

}  // namespace assay::network
