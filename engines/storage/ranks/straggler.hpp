// The record of the slowest rank of a benchmark.
#pragma once

#include "storage/ranks/ranks.hpp"

namespace assay::storage {

// Writes a record "straggler": the slowest rank by the median of its times, against the median of
// the other ranks. `rank_times`: a row per repetition, with the time of each rank, on rank 0 only.
void report_straggler(Ranks& ranks, const Json& params,
                      const std::vector<std::vector<double>>& rank_times);

}  // namespace assay::storage
