// Where messages were lost on this host, by the counters of the kernel and of the adapter.
//
// No counter counts messages. The socket's counter belongs to this run alone, but counts a block of
// joined messages (GRO) as one. The other counters are of the whole host and count packets; a
// fragmented message is several packets. So the counters are upper bounds. Lost messages are
// attributed to one counter after the other, beginning with the one nearest to the application. The
// remaining messages never arrived.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace assay::node {

// Counters by name: "softnet.dropped", "ip.reassembly_failures", "nic.rx_dropped" ...
using DropCounters = std::map<std::string, std::uint64_t>;

// The counters of this host (its network namespace) and of one interface.
DropCounters read_drops(const std::string& interface);

// The counters that grew, by how much.
DropCounters growth(const DropCounters& before, const DropCounters& after);

struct Losses {
    std::uint64_t socket = 0, softnet = 0, nic = 0, reassembly = 0, sender = 0, unattributed = 0;
};

// Attributes `lost` messages to their causes. `socket` and `sender` are upper bounds for the losses
// in the sockets and in the sender's own queue.
Losses attribute(std::uint64_t lost, std::uint64_t socket, std::uint64_t sender,
                 const DropCounters& growth);

// The adapter's private counters ("ethtool -S") whose names indicate receive problems.
DropCounters read_private_counters(const std::string& interface);

}  // namespace assay::node
