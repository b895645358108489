// The time after which a silent peer counts as lost. It grows with the largest recent delay of the
// peer's heartbeats and of this rank's own thread, as in accrual failure detectors (Hayashibara et
// al., SRDS 2004): on a host whose processors are busy, heartbeats are often late.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/clock.hpp"

namespace assay::direct {

// The largest recent delay. It decays with a half-life of two seconds.
class Delay {
public:
    void record(Nanoseconds delay, Nanoseconds time) {
        const Nanoseconds decayed = value_at(time);
        if (delay < decayed) return;
        largest_ = delay;
        recorded_at_ = time;
    }
    Nanoseconds value_at(Nanoseconds time) const {
        if (largest_ == 0) return 0;
        const double half_lives = static_cast<double>(time - recorded_at_) / half_life;
        return static_cast<Nanoseconds>(static_cast<double>(largest_) * std::exp2(-half_lives));
    }

private:
    static constexpr double half_life = 2e9;
    Nanoseconds largest_ = 0, recorded_at_ = 0;
};

// `limit`: the time without delays; `own_delay`: of this rank's heartbeat thread; `peer_delay`: of
// the peer's heartbeats.
inline Nanoseconds silence_limit(Nanoseconds limit, Nanoseconds own_delay, Nanoseconds peer_delay) {
    constexpr Nanoseconds delay_factor = 3, max_factor = 20;
    return std::min(limit + delay_factor * std::max(own_delay, peer_delay), max_factor * limit);
}

}  // namespace assay::direct
