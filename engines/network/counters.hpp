// The kernel's counters of each network port of this host (sysfs), and of its TCP. They show which
// adapter carried the bytes, and whether MPI used the network.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace assay::network {

// {device, counter} -> value. Devices are network interfaces ("eth0") without loopback, InfiniBand
// ports ("mlx5_0:1"), and "tcp". port_*_data is in bytes (the hardware counts units of four).
using Counters = std::map<std::pair<std::string, std::string>, std::uint64_t>;

Counters read_counters();

// The counters that grew, by how much. A counter that went backwards (reset or wrapped) is left
// out.
Counters difference(const Counters& before, const Counters& after);

// Bytes sent over InfiniBand ports and over interfaces. Interfaces above others (a bond or bridge)
// and IP interfaces of InfiniBand ports are left out, since their bytes are counted below them.
std::uint64_t bytes_on_the_wire(const Counters& difference);

}  // namespace assay::network
