// Where messages were lost on this host, by the counters of the kernel and of the adapter.
//
// None of these counters counts messages. The socket's is of this run alone, but counts a block of
// messages that the kernel joined (GRO) once; the others are of the whole host, and count packets,
// of which a message that was cut up has several. So they say where to look: each is held to what
// is missing in all, the nearest to the application first. What none of them explains never
// arrived.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace assay::node {

// Counters by name: "softnet.dropped", "ip.reassembly_failures", "nic.rx_dropped" ...
using DropCounters = std::map<std::string, std::uint64_t>;

// Of this host (its network namespace) and of one interface.
DropCounters read_drops(const std::string& interface);

// What grew, by how much.
DropCounters grown(const DropCounters& before, const DropCounters& after);

struct Losses {
    std::uint64_t socket = 0, softnet = 0, nic = 0, reassembly = 0, sender = 0, unseen = 0;
};

// Of `lost` messages. `socket`, `sender`: at most so many in the sockets, and in the sender's own
// queue.
Losses attribute(std::uint64_t lost, std::uint64_t socket, std::uint64_t sender,
                 const DropCounters& grown);

// The adapter's own counters (what "ethtool -S" shows) that speak of trouble in receiving, by name.
DropCounters read_private_counters(const std::string& interface);

}  // namespace assay::node
