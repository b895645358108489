// The results of a reception and their records. A result compares the messages that arrived with
// those that the sender reports as sent.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "core/record.hpp"
#include "node/udp/drops.hpp"
#include "node/udp/receive_threads.hpp"
#include "node/udp/wire.hpp"

namespace assay::node {

// The measured data of a reception. `end` is none if the sender fell silent, or if this side was
// interrupted.
struct Reception {
    Hello hello{};
    std::optional<End> end{};
    Arrivals arrivals{};
    bool interrupted = false;
    std::uint64_t socket_drops = 0;
    Counters growth{};            // of the kernel's and the interface's counters
    Counters private_growth{};    // of the adapter's private counters
    std::uint64_t fragments = 1;  // of a message
    Json details{};               // record parameters: threads, buffers, ...
};

struct ReceptionResult {
    std::uint64_t expected = 0, unique = 0, lost = 0, duplicates = 0, reordered = 0;
    double planned = 0, sent = 0;  // messages that the sender planned, and reports as sent
    double seconds = 0;            // first to last arrival
    double bandwidth = 0;          // B/s
    Losses losses{};
    // The reason why the value does not show the receiver's limit; empty if it does.
    std::string bandwidth_doubt{}, loss_doubt{};

    double share(std::uint64_t count) const {
        return expected ? static_cast<double>(count) / static_cast<double>(expected) : 0;
    }
};

ReceptionResult evaluate(const Reception&);

// Writes the records.
void report(Sink&, const Subject&, const Reception&, const ReceptionResult&);

}  // namespace assay::node
