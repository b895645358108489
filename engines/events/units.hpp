// The units of each rank, and the ranks that are members of the job at a time.
//
// A readout unit is a source of fragments. A builder unit gathers the fragments of an event from
// all readout units. A filter unit takes built events.
//
// A membership has an epoch, which grows with each change, and for each rank the epoch since which
// it has been a member without interruption (0: it is not a member). A rank that comes back is a
// member from a new epoch on.
#pragma once

#include <cstdint>
#include <vector>

namespace assay::events {

using Epoch = std::uint32_t;

// The ranks of each kind of unit, ascending. A rank may have a readout and a builder unit (folded).
struct Units {
    std::vector<int> readouts, builders, filters;

    // Throws Error if the ranks are too few.
    static Units assign(int ranks, bool split, int filters);
};

struct Membership {
    Epoch epoch = 0;
    std::vector<Epoch> since;  // by rank

    bool has(int rank) const { return since[static_cast<std::size_t>(rank)] != 0; }
    // Whether the rank has been a member without interruption since `start`.
    bool has_since(int rank, Epoch start) const {
        const Epoch begin = since[static_cast<std::size_t>(rank)];
        return begin != 0 && begin <= start;
    }
    // The members among `ranks`.
    std::vector<int> intersect(const std::vector<int>& ranks) const;
};

}  // namespace assay::events
