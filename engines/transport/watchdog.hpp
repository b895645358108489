// Notices a call that does not come back: MPI_Init, a flush, a gather with a host that is gone.
//
// A thread of its own sleeps and looks now and then whether the call that was entered has been left
// since; entering and leaving are one relaxed store each, so it may stand in a hot path.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "core/clock.hpp"

namespace assay {

class Watchdog {
public:
    // `stalled` runs on the watchdog's thread, once, when one call takes longer than `limit`;
    // `look`, if any, runs at every look.
    Watchdog(Nanoseconds limit, std::function<void()> stalled, std::function<void()> look = {})
        : limit_(limit),
          stalled_(std::move(stalled)),
          look_(std::move(look)),
          thread_([this](std::stop_token stop) { watch(stop); }) {}

    void enter(Nanoseconds at) { entered_.store(at, std::memory_order_relaxed); }
    void leave() { entered_.store(0, std::memory_order_relaxed); }

private:
    void watch(const std::stop_token& stop) {
        const auto pause =
            std::chrono::nanoseconds(std::min<Nanoseconds>(limit_ / 8 + 1, 200'000'000));
        std::unique_lock lock(mutex_);
        Nanoseconds last = now(), frozen = 0;
        while (!wake_.wait_for(lock, stop, pause, [&] { return stop.stop_requested(); })) {
            if (look_) look_();
            // Slept far too long: this process itself was stopped, which is no one else's fault.
            const Nanoseconds t = now();
            if (t - last > limit_ / 2) frozen = t;
            last = t;
            const Nanoseconds entered = entered_.load(std::memory_order_relaxed);
            if (entered == 0 || t - std::max(entered, frozen) < limit_) continue;
            stalled_();
            return;
        }
    }

    const Nanoseconds limit_;
    const std::function<void()> stalled_, look_;
    std::atomic<Nanoseconds> entered_{0};
    std::mutex mutex_;
    std::condition_variable_any wake_;
    std::jthread thread_;  // last: it starts when all else stands, and is joined first
};

}  // namespace assay
