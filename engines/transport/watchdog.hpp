// Detects a blocking call that does not return: MPI_Init, a flush, a gather with a dead host.
//
// A separate thread periodically checks whether an entered call has been left. enter() and leave()
// are one relaxed store each, cheap enough for a hot path.
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
    // `on_stall` runs on the watchdog's thread, once, when a call takes longer than `limit`;
    // `on_check`, if any, runs at every check.
    Watchdog(Nanoseconds limit, std::function<void()> on_stall, std::function<void()> on_check = {})
        : limit_(limit),
          on_stall_(std::move(on_stall)),
          on_check_(std::move(on_check)),
          thread_([this](const std::stop_token& stop) { watch(stop); }) {}

    void enter(Nanoseconds time) { entered_.store(time, std::memory_order_relaxed); }
    void leave() { entered_.store(0, std::memory_order_relaxed); }

private:
    void watch(const std::stop_token& stop) {
        const auto pause =
            std::chrono::nanoseconds(std::min<Nanoseconds>(limit_ / 8 + 1, 200'000'000));
        std::unique_lock lock(mutex_);
        Nanoseconds last = now(), resumed = 0;
        while (!wake_.wait_for(lock, stop, pause, [&] { return stop.stop_requested(); })) {
            if (on_check_) on_check_();
            // The thread slept far too long: this process was stopped, so the call may not be
            // stuck.
            const Nanoseconds t = now();
            if (t - last > limit_ / 2) resumed = t;
            last = t;
            const Nanoseconds entered = entered_.load(std::memory_order_relaxed);
            if (entered == 0 || t - std::max(entered, resumed) < limit_) continue;
            on_stall_();
            return;
        }
    }

    const Nanoseconds limit_;
    const std::function<void()> on_stall_, on_check_;
    std::atomic<Nanoseconds> entered_{0};
    std::mutex mutex_;
    std::condition_variable_any wake_;
    std::jthread thread_;  // last member: starts after the others exist, and is joined first
};

}  // namespace assay
