// node.noise: the time that a busy loop loses to the operating system, other programs or a
// hypervisor.
#pragma once

#include <array>

#include "core/registry.hpp"

namespace assay::node {

namespace detail {
void run_noise(const Options&, Bench&);

inline constexpr std::array noise_parameters = {
    Parameter{"budget", Kind::real, "s", "1", "time for which each core is observed", 0.1, 3600},
};
inline constexpr std::array noise_metrics = {
    Metric{"lost", "1", Better::lower,
           "share of a busy loop's time taken by something else; one sample per core"},
    Metric{"longest", "s", Better::lower, "longest single interruption; one sample per core"},
};
}  // namespace detail

inline constexpr Measurement noise{
    "node.noise",
    Scope::node,
    "Time that a busy loop loses to the operating system, to other programs or to a hypervisor.",
    detail::noise_parameters,
    detail::noise_metrics,
    runs_anywhere,
    detail::run_noise};

}  // namespace assay::node
