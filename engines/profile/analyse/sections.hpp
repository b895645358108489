// The parts of a heap profile (heap_schema.hpp) beside its tree.
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

// By node: the first location of its allocation site's line.
using Sites = std::span<const std::uint32_t>;

HeapProcess process_section(const TraceMetadata& metadata);
HeapTotals totals_section(const TraceMetadata& metadata, const AllocationStats& stats);
std::vector<HeapThread> threads_section(const TraceMetadata& metadata, const AllocationStats& stats,
                                        Sites sites);
HeapTimeline timeline_section(const TraceMetadata& metadata, const AllocationStats& stats);
// The most frequent exact sizes and their blocks.
void add_frequent_sizes(HeapProfile& profile, const AllocationStats& stats);
// By the first location of the function that allocated. `functions`: by node.
std::map<std::string, HeapHistograms> histograms_section(const AllocationStats& stats,
                                                         std::span<const std::uint32_t> functions);
std::optional<HeapFragmentation> fragmentation_section(const TraceMetadata& metadata,
                                                       const Fragmentation& fragmentation,
                                                       Sites sites);
std::optional<HeapTouches> touches_section(const TraceMetadata& metadata,
                                           const FirstTouchStats& first_touches,
                                           const CallTree& tree, Sites sites, Symbols& symbols);
void add_globals(HeapProfile& profile, const Globals& globals);

}  // namespace assay::heap
