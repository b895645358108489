// A paced memory workload: does the machine keep up with an application's own memory traffic?
#pragma once

#include <array>

#include "core/realtime.hpp"
#include "core/registry.hpp"

namespace assay::node {

namespace detail {
void run_memory_paced(const Options&, Bench&);

inline constexpr std::array paced_parameters = {
    Parameter{"workload", Kind::text, "", "",
              "the workload, as JSON (assay mem makes it of a workload file)"},
    Parameter{"seconds", Kind::real, "s", "25", "how long", 0.1, 86400},
    Parameter{"scale", Kind::real, "", "1", "share of the workload's rates", 1e-6, 1000},
    realtime_parameter,
};
inline constexpr std::array paced_metrics = {
    Metric{"desired", "B/s", Better::none, "what the workload moves, a copied byte counted twice"},
    Metric{"measured", "B/s", Better::higher, "what was moved, of each thread over its own time"},
    Metric{"achieved", "1", Better::higher, "measured over desired"},
    Metric{"late", "1", Better::lower,
           "mean over the threads of the share of bytes whose block began when its time was "
           "already over"},
    Metric{"lateness", "s", Better::lower,
           "from the moment at which a block should have begun until it did"},
    Metric{"step_achieved", "1", Better::higher, "the same of one step, over all stations"},
    Metric{"step_late", "1", Better::lower, "the same of one step, over all stations"},
};
}  // namespace detail

inline constexpr Measurement memory_paced{"node.memory_paced",
                                          Scope::node,
                                          "An application's memory traffic at its own pace: what "
                                          "of it the machine delivers, and how late.",
                                          detail::paced_parameters,
                                          detail::paced_metrics,
                                          runs_anywhere,
                                          detail::run_memory_paced};

}  // namespace assay::node
