// The lengths of the messages between two ranks, their prefixes included.
#pragma once

#include <algorithm>
#include <cstddef>

#include "transport/ofi/flow.hpp"

namespace assay::ofi {

// What bounds the messages of a rank.
struct Limits {
    std::size_t message_bytes;  // of the provider
    std::size_t receives;       // of the provider, at once
    bool reaches_other_hosts;   // in the memory of one host no message waits on a slow link
    int ranks;
};

struct Lengths {
    static constexpr std::size_t shortest = 16U << 10, short_message = 32U << 10,
                                 longest = short_message << Flow::most_halvings;
    static constexpr std::size_t max_memory = 64U << 20;  // of a rank's receives

    std::size_t largest;
    unsigned halvings;  // how often the largest may be halved

    // Receives for each peer: its messages, and acknowledgements beside them.
    std::size_t receives_per_peer() const { return Flow::depth(halvings) + 2; }

    // What a rank can receive. It is less where many ranks would need much memory or many receives.
    static Lengths of(const Limits& limits) {
        const std::size_t peers = static_cast<std::size_t>(std::max(1, limits.ranks - 1));
        for (unsigned halvings = Flow::most_halvings; limits.reaches_other_hosts && halvings > 0;
             --halvings) {
            const Lengths lengths{short_message << halvings, halvings};
            const std::size_t receives = peers * lengths.receives_per_peer();
            if (lengths.largest <= limits.message_bytes && receives <= limits.receives &&
                receives * lengths.largest <= max_memory)
                return lengths;
        }
        Lengths lengths{limits.reaches_other_hosts ? short_message : longest, 0};
        const std::size_t share = max_memory / (peers * lengths.receives_per_peer()) / 4096 * 4096;
        lengths.largest =
            std::min(std::clamp(share, shortest, lengths.largest), limits.message_bytes);
        return lengths;
    }

    // What this rank may send to a peer that receives messages of at most `largest_of_peer` bytes:
    // adapters of one provider can have other limits. Both ends compute the same.
    Lengths common(std::size_t largest_of_peer) const {
        Lengths lengths = *this;
        for (; lengths.halvings > 0 && lengths.largest > largest_of_peer; --lengths.halvings)
            lengths.largest /= 2;
        lengths.largest = std::min(lengths.largest, largest_of_peer);
        return lengths;
    }
};

}  // namespace assay::ofi
