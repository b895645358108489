// Memory bandwidth of one core and of all cores.
#pragma once

#include <array>

#include "core/registry.hpp"

namespace assay::node {

namespace detail {
void run_memory(const Options&, Bench&);

inline constexpr std::array memory_parameters = {
    Parameter{"seconds", Kind::real, "s", "0.3", "time for each operation and number of threads", 0.01, 3600},
    Parameter{"repeats", Kind::integer, "", "9", "passes at least, so that a median is one", 3, 1e6},
};
inline constexpr std::array memory_metrics = {
    Metric{"bandwidth", "B/s", Better::higher, "bytes that really move: a regular store also reads its line first"},
};
}  // namespace detail

inline constexpr Measurement memory{
    "node.memory", Scope::node,
    "Memory bandwidth of one core and of all cores: read, write, copy and triad.",
    detail::memory_parameters, detail::memory_metrics, runs_anywhere, detail::run_memory};

}  // namespace assay::node
