// Where messages were lost on this host, by the counters of the kernel and of the adapter.
//
// No counter counts messages. The socket's counter belongs to this run alone, but counts a block of
// joined messages (GRO) as one. The other counters are of the whole host and count packets; a
// fragmented message is several packets. So the counters are upper bounds. Lost messages are
// attributed to one counter after the other, beginning with the one nearest to the application; the
// sender's queue comes before missing fragments, which it explains. The remaining messages never
// arrived.
#pragma once

#include <cstdint>
#include <string>

#include "core/host_counters.hpp"

namespace assay::node {

// The counters of this host (its network namespace) and of one interface: "softnet.dropped",
// "ip.reassembly_failures", "nic.rx_dropped" ...
Counters read_drops(const std::string& interface);

// The number of packets of a message of `size` bytes. `headers`: those of IP and UDP, in bytes.
std::uint64_t fragments_of(std::uint64_t size, int mtu, int headers);

struct Losses {
    std::uint64_t socket = 0, softnet = 0, nic = 0, reassembly = 0, sender = 0, unattributed = 0;
};

// Attributes `lost` messages to their causes. `socket` and `sender` are upper bounds for the losses
// in the sockets and in the sender's own queue; `fragments` are those of a message.
Losses attribute(std::uint64_t lost, std::uint64_t socket, std::uint64_t sender,
                 const Counters& growth, std::uint64_t fragments = 1);

// The adapter's private counters ("ethtool -S") whose names indicate receive problems.
Counters read_private_counters(const std::string& interface);

}  // namespace assay::node
