// Real-time priority for a measurement: what "chrt -f 1" does, asked for by its --realtime.
#pragma once

#include "core/registry.hpp"

namespace assay {

inline constexpr Parameter realtime_parameter{
    "realtime", Kind::flag, "", "",
    "run with real-time priority (SCHED_FIFO 1), as 'chrt -f 1' would"};

// The calling thread, and every thread that it makes from now on. Throws Error without the
// permission.
void enter_realtime();

}  // namespace assay
