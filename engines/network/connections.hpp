// The kernel's TCP counters of each connection of this host (struct tcp_info, by sock_diag(7)).
// Unlike the counters of the host, they are known for each peer. Any user may read them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace assay::network {

struct SegmentCounts {
    std::string peer;                           // address
    std::uint64_t sent = 0, retransmitted = 0;  // segments with data
};

// The established connections, IPv4 and IPv6, by the kernel's identifier (cookie) of the socket.
// Empty if the kernel does not report them.
using Connections = std::map<std::uint64_t, SegmentCounts>;

Connections read_connections();

// The segments sent to each peer between two readings, by address. A connection of `after` that is
// not in `before` counts from its beginning. A connection that has ended since is not counted.
std::map<std::string, SegmentCounts> growth_by_peer(const Connections& before,
                                                    const Connections& after);

}  // namespace assay::network
