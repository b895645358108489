// What the kernel's TCP counted on each connection of this host (struct tcp_info, by the socket
// diagnosis of netlink). Unlike the counters of the host they tell its peers apart. Any user may
// read them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace assay::network {

struct SegmentCounts {
    std::string peer;                        // address
    std::uint64_t sent = 0, sent_again = 0;  // segments with data
};

// By the kernel's identifier (cookie) of the socket. Only established connections, IPv4 and IPv6.
// Empty where the kernel does not tell.
using Connections = std::map<std::uint64_t, SegmentCounts>;

Connections read_connections();

// What each peer was sent between two readings, by address. A connection of `after` that is not in
// `before` counts from its beginning; one that has ended since is not counted.
std::map<std::string, SegmentCounts> growth_by_peer(const Connections& before,
                                                    const Connections& after);

}  // namespace assay::network
