// Builds the parts of a heap profile (heap_schema.hpp) other than its tree.
#pragma once

#include <span>

#include "profile/analyse/allocation_stats.hpp"
#include "profile/analyse/call_tree.hpp"
#include "profile/analyse/first_touch.hpp"
#include "profile/analyse/fragmentation.hpp"
#include "profile/analyse/globals.hpp"
#include "profile/analyse/heap_schema.hpp"
#include "profile/analyse/metadata.hpp"

namespace assay::heap {

// By node: the line of its allocation site, as the line's first location.
using Sites = std::span<const std::uint32_t>;

HeapProcess make_process_section(const TraceMetadata& metadata);
HeapTotals make_totals_section(const TraceMetadata& metadata, const AllocationStats& stats);
std::vector<HeapThread> make_threads_section(const TraceMetadata& metadata,
                                             const AllocationStats& stats, Sites sites);
HeapTimeline make_timeline_section(const TraceMetadata& metadata, const AllocationStats& stats);
// Adds the most frequent exact sizes and their numbers of blocks.
void add_frequent_sizes(HeapProfile& profile, const AllocationStats& stats);
// Histograms by allocating function, identified by its first location. `functions`: function by
// node.
std::map<std::string, HeapHistograms> make_histograms_section(
    const AllocationStats& stats, std::span<const std::uint32_t> functions);
std::optional<HeapFragmentation> make_fragmentation_section(const TraceMetadata& metadata,
                                                            const Fragmentation& fragmentation,
                                                            Sites sites);
std::optional<HeapTouches> make_touches_section(const TraceMetadata& metadata,
                                                const FirstTouchStats& first_touches,
                                                const CallTree& tree, Sites sites,
                                                Symbols& symbols);
void add_globals(HeapProfile& profile, const Globals& globals);

}  // namespace assay::heap
