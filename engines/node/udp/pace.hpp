// The sending schedule of a stream. Due times are counted from the start, so delays do not
// accumulate.
//
// Messages are sent in batches (one system call each); a batch is due when its first message is. A
// delayed sender catches up at no more than 1.25 times the rate: a burst at link speed would be
// lost in a switch, and the receiver would be blamed. The streams' phases are spread over the time
// of a batch, so that all streams together are as even as one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/clock.hpp"

namespace assay::node {

class Pace {
public:
    // `rate` is in messages per second; `phase`, 0 to 1, is in units of a batch's time.
    Pace(double rate, std::uint64_t planned, std::uint64_t batch, double phase)
        : interval_(1e9 / rate),
          planned_(planned),
          batch_(batch),
          phase_(phase * interval_ * static_cast<double>(batch)) {}

    bool done() const { return sent_ >= planned_; }
    std::uint64_t sent() const { return sent_; }
    std::uint64_t batch() const { return std::min(batch_, planned_ - sent_); }

    // Times in ns after the start.
    Nanoseconds scheduled() const {
        return std::llround(phase_ + static_cast<double>(sent_) * interval_);
    }
    Nanoseconds due() const { return std::max(scheduled(), earliest_); }

    // The next batch, or its first `messages`, was sent at `time`.
    void advance(Nanoseconds time, std::uint64_t messages) {
        sent_ += messages;
        earliest_ = time + std::llround(0.8 * interval_ * static_cast<double>(messages));
    }

private:
    double interval_;
    std::uint64_t planned_, batch_;
    double phase_;
    std::uint64_t sent_ = 0;
    Nanoseconds earliest_ = 0;
};

// Messages per batch: at most a millisecond of the stream, 64 kB (the kernel's limit per call), and
// 256 messages.
inline std::uint64_t batch_size(double messages_per_second, std::uint64_t size) {
    const double messages =
        std::min({messages_per_second * 1e-3, 65000.0 / static_cast<double>(size), 256.0});
    return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(messages));
}

}  // namespace assay::node
