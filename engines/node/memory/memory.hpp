// node.memory: bandwidth from the cores of each NUMA node to the memory of each, in B/s. Cores
// whose node has no memory use the nearest; what is not the cores' own has the parameter
// locality=remote.
//
// The operations read, write, copy and triad follow McCalpin's STREAM (kernels.hpp, memory.cpp).
// Throws Error if the arrays, 12 times the last-level cache, do not fit into the free memory.
// Memory-only nodes add to that.
#pragma once

#include <array>

#include "core/realtime.hpp"
#include "core/registry.hpp"

namespace assay::node {

namespace detail {
void run_memory(const Options&, Bench&);

inline constexpr std::array memory_parameters = {
    Parameter{"budget", Kind::real, "s", "0.3",
              "time for each operation on each pair of nodes with each number of threads", 0.01,
              3600},
    Parameter{"repeats", Kind::integer, "", "9",
              "least number of passes, so that the median is meaningful; a pass covers the arrays, "
              "or the "
              "next part of them where that takes longer than its share of the budget",
              3, 1e6},
    Parameter{"limit", Kind::real, "s", "0",
              "time for all operations together; those that do not fit are waived; 0: no limit", 0,
              86400},
    realtime_parameter,
};
inline constexpr std::array memory_metrics = {
    Metric{
        "bandwidth", "B/s", Better::higher,
        "bytes that move to and from memory: a regular store counts twice, since it also reads its "
        "cache line; it counts once where the rates show no such read (line_reads: none)"},
};
}  // namespace detail

inline constexpr Measurement memory{"node.memory",
                                    Scope::node,
                                    "Memory bandwidth of one core, of each NUMA node's cores with "
                                    "each node's memory, and of all nodes at once.",
                                    detail::memory_parameters,
                                    detail::memory_metrics,
                                    runs_anywhere,
                                    detail::run_memory};

}  // namespace assay::node
