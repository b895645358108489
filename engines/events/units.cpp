// Assigns ranks to units.
#include "events/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/error.hpp"

namespace assay::events {

Units Units::assign(int ranks, bool split, int filters) {
    const int unit_ranks = ranks - filters, min_ranks = split ? 3 : 2;
    if (unit_ranks < min_ranks)
        throw Error(fmt::format("{} ranks and {} filter units: an event builder needs {} other "
                                "ranks at least",
                                ranks, filters, min_ranks),
                    split ? "start more ranks: a manager, a readout and a builder unit"
                          : "start more ranks, for example mpirun -np 4, or lower --filters");
    Units units;
    for (int rank = 0; rank < unit_ranks; ++rank) {
        if (!split || rank % 2 == 1) units.readouts.push_back(rank);
        if (!split || (rank % 2 == 0 && rank > 0)) units.builders.push_back(rank);
    }
    for (int rank = unit_ranks; rank < ranks; ++rank) units.filters.push_back(rank);
    return units;
}

std::vector<int> Membership::intersect(const std::vector<int>& ranks) const {
    std::vector<int> members;
    std::ranges::copy_if(ranks, std::back_inserter(members), [this](int r) { return has(r); });
    return members;
}

}  // namespace assay::events
