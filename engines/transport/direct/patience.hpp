// How long a silent peer may still be alive: longer while peers, or this rank, were late of late.
//
// A host that has ended stays silent; one whose processors are taken by others is late, and was
// late before. Their gaps tell them apart, as in accrual failure detectors (Hayashibara et al.,
// SRDS 2004): the limit grows with the largest delay of the last seconds.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/clock.hpp"

namespace assay::direct {

// The largest delay, which fades: half of it is left after two seconds.
class Delay {
public:
    void note(Nanoseconds delay, Nanoseconds time) {
        const Nanoseconds faded = at(time);
        if (delay < faded) return;
        largest_ = delay;
        noted_ = time;
    }
    Nanoseconds at(Nanoseconds time) const {
        if (largest_ == 0) return 0;
        const double halves = static_cast<double>(time - noted_) / half_life;
        return static_cast<Nanoseconds>(static_cast<double>(largest_) * std::exp2(-halves));
    }

private:
    static constexpr double half_life = 2e9;
    Nanoseconds largest_ = 0, noted_ = 0;
};

// `limit`: without any delay. `own`: of this rank's own thread; `peer`: of what the peer sends.
inline Nanoseconds patience(Nanoseconds limit, Nanoseconds own, Nanoseconds peer) {
    constexpr Nanoseconds times = 3, most = 20;
    return std::min(limit + times * std::max(own, peer), most * limit);
}

}  // namespace assay::direct
