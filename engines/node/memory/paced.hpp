// node.memory_paced: whether the machine sustains the memory traffic of an application, at the
// application's own pace.
#pragma once

#include <array>

#include "core/realtime.hpp"
#include "core/registry.hpp"

namespace assay::node {

namespace detail {
void run_memory_paced(const Options&, Bench&);

inline constexpr std::array paced_parameters = {
    Parameter{"workload", Kind::text, "", "",
              "the workload as JSON (assay mem generates it from a workload file)"},
    Parameter{"budget", Kind::real, "s", "25", "duration", 0.1, 86400},
    Parameter{"scale", Kind::real, "", "1", "factor on the workload's rates", 1e-6, 1000},
    realtime_parameter,
};
inline constexpr std::array paced_metrics = {
    Metric{"desired", "B/s", Better::none, "traffic of the workload; a copied byte counts twice"},
    Metric{"measured", "B/s", Better::higher,
           "traffic that was achieved, of each thread over its own time"},
    Metric{"achieved", "1", Better::higher, "measured over desired"},
    Metric{"late", "1", Better::lower,
           "share of blocks that began after their period had passed, mean over the threads"},
    Metric{"lateness", "s", Better::lower, "time by which a block began after it was due"},
    Metric{"step_achieved", "1", Better::higher, "achieved, of one step over all stations"},
    Metric{"step_late", "1", Better::lower, "late, of one step over all stations"},
};
}  // namespace detail

inline constexpr Measurement memory_paced{"node.memory_paced",
                                          Scope::node,
                                          "An application's memory traffic at its own pace: how "
                                          "much of it the machine sustains, and how late.",
                                          detail::paced_parameters,
                                          detail::paced_metrics,
                                          runs_anywhere,
                                          detail::run_memory_paced};

}  // namespace assay::node
