// Transport::idle_wait() for libraries that move bytes only while they are called.
#pragma once

#include <sched.h>

#include <algorithm>
#include <ctime>

#include "core/clock.hpp"

namespace assay {

// Yields the processor at first, and sleeps after a longer time without a completion. A thread that
// yields runs again after all others have used their time slices; one that wakes runs soon.
inline void yield_or_sleep(Nanoseconds idle, Nanoseconds limit) {
    constexpr Nanoseconds sleep_after = 200'000, max_sleep = 50'000;
    if (idle < sleep_after) {
        sched_yield();
        return;
    }
    const timespec pause{0, static_cast<long>(std::min(limit, max_sleep))};
    nanosleep(&pause, nullptr);
}

}  // namespace assay
