// What a node can do by itself.
#pragma once

#include <array>

#include "core/registry.hpp"

namespace assay::node {

namespace detail {
inline std::optional<std::string> always() { return std::nullopt; }
void run_memory(const Options&, Bench&);
void run_noise(const Options&, Bench&);

inline constexpr std::array memory_parameters = {
    Parameter{"seconds", Kind::real, "s", "0.3", "time for each operation and number of threads", 0.01, 3600},
    Parameter{"repeats", Kind::integer, "", "9", "passes at least, so that a median is one", 3, 1e6},
};
inline constexpr std::array memory_metrics = {
    Metric{"bandwidth", "B/s", Better::higher, "bytes that really move: a regular store also reads its line first"},
};
inline constexpr std::array noise_parameters = {
    Parameter{"seconds", Kind::real, "s", "1", "time for which every core is watched", 0.1, 3600},
};
inline constexpr std::array noise_metrics = {
    Metric{"lost", "1", Better::lower, "share of a busy loop's time taken by something else, worst core"},
    Metric{"longest", "s", Better::lower, "longest single interruption"},
};
}  // namespace detail

inline constexpr Measurement memory{
    "node.memory", Scope::node,
    "Memory bandwidth of one core and of all cores: read, write, copy and triad.",
    detail::memory_parameters, detail::memory_metrics, detail::always, detail::run_memory};

inline constexpr Measurement noise{
    "node.noise", Scope::node,
    "Time that a busy loop loses to the operating system, to other programs or to a hypervisor.",
    detail::noise_parameters, detail::noise_metrics, detail::always, detail::run_noise};

}  // namespace assay::node
