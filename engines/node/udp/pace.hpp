// When a stream sends: an absolute schedule, so that no delay adds up.
//
// Messages go out in batches (one system call each); batch k is due when its first message is. A
// sender that was held up catches up, but by a quarter faster than the rate at most: a burst at the
// speed of its link would be lost in a switch, and the receiver blamed. Streams start apart by
// their share of a batch's time, so that together they are as even as one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/clock.hpp"

namespace assay::node {

class Pace {
public:
    // `rate` in messages a second; `phase` 0..1 of a batch's time.
    Pace(double rate, std::uint64_t planned, std::uint64_t batch, double phase)
        : interval_(1e9 / rate),
          planned_(planned),
          batch_(batch),
          phase_(phase * interval_ * static_cast<double>(batch)) {}

    bool done() const { return sent_ >= planned_; }
    std::uint64_t sent() const { return sent_; }
    std::uint64_t batch() const { return std::min(batch_, planned_ - sent_); }

    // In ns after the start.
    Nanoseconds scheduled() const {
        return std::llround(phase_ + static_cast<double>(sent_) * interval_);
    }
    Nanoseconds due() const { return std::max(scheduled(), earliest_); }

    // The next batch (or the first `messages` of it) went out at `when`.
    void advance(Nanoseconds when, std::uint64_t messages) {
        sent_ += messages;
        earliest_ = when + std::llround(0.8 * interval_ * static_cast<double>(messages));
    }

private:
    double interval_;
    std::uint64_t planned_, batch_;
    double phase_;
    std::uint64_t sent_ = 0;
    Nanoseconds earliest_ = 0;
};

// Messages in a batch: at most a millisecond of the stream, 64 kB (what the kernel takes at once),
// 256.
inline std::uint64_t batch_of(double messages_a_second, std::uint64_t size) {
    const double worth =
        std::min({messages_a_second * 1e-3, 65000.0 / static_cast<double>(size), 256.0});
    return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(worth));
}

}  // namespace assay::node
