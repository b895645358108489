// The units of each rank, and the ranks that are members of the job at a time.
//
// A membership has an epoch, and for each rank the epoch since which it belongs to the job without
// interruption (0: it does not). A rank that comes back belongs anew.
#pragma once

#include <cstdint>
#include <vector>

namespace assay::events {

using Epoch = std::uint32_t;

// Ranks by unit, ascending. Folded: readout and builder unit at once.
struct Units {
    std::vector<int> readouts, builders, filters;

    // Throws Error if the ranks are too few.
    static Units assign(int ranks, bool split, int filters);
};

struct Membership {
    Epoch epoch = 0;
    std::vector<Epoch> since;  // by rank

    bool has(int rank) const { return since[static_cast<std::size_t>(rank)] != 0; }
    // Whether the rank has belonged without interruption since `epoch_`.
    bool had(int rank, Epoch epoch_) const {
        const Epoch begin = since[static_cast<std::size_t>(rank)];
        return begin != 0 && begin <= epoch_;
    }
    std::vector<int> of(const std::vector<int>& ranks) const;
};

}  // namespace assay::events
