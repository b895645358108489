// Real-time priority for a measurement with --realtime, as "chrt -f 1" sets it.
#pragma once

#include "core/registry.hpp"

namespace assay {

inline constexpr Parameter realtime_parameter{
    "realtime", Kind::flag, "", "",
    "run with real-time priority (SCHED_FIFO 1), as 'chrt -f 1' would"};

// Sets the priority of the calling thread and of every thread that it creates later. Throws Error
// without the permission.
void enter_realtime();

}  // namespace assay
