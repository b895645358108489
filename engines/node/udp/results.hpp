// What a reception showed, reckoned from what arrived and what the sender said that it had sent,
// and as records.
#pragma once

#include <optional>
#include <string>

#include "core/record.hpp"
#include "node/udp/drops.hpp"
#include "node/udp/listen.hpp"
#include "node/udp/wire.hpp"

namespace assay::node {

// How a reception went; `end` is none when the sender fell silent, or when this side was told to
// stop.
struct Reception {
    Hello hello{};
    std::optional<End> end{};
    Arrivals arrivals{};
    bool interrupted = false;
    std::uint64_t socket_drops = 0;
    DropCounters grown{};          // the kernel's and the interface's, over the run
    DropCounters private_grown{};  // the adapter's own
    Json details{};                // threads, buffers ...: how it was received
};

struct Reckoning {
    std::uint64_t expected = 0, unique = 0, lost = 0, duplicates = 0, reordered = 0;
    double planned = 0, sent = 0;  // messages that the sender wanted to send, and says it has
    double seconds = 0;            // first to last arrival
    double bandwidth = 0;          // B/s
    Losses losses{};
    // Why the figure says nothing of the receiver; empty when it does.
    std::string bandwidth_doubt{}, loss_doubt{};

    double share(std::uint64_t count) const {
        return expected ? static_cast<double>(count) / static_cast<double>(expected) : 0;
    }
};

Reckoning reckon(const Reception&);

void report(Sink&, const Subject&, const Reception&, const Reckoning&);

}  // namespace assay::node
