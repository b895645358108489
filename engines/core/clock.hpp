// One monotonic clock per process. Clocks of different hosts are never compared: every duration
// that Assay reports has both its ends on one host.
#pragma once

#include <cstdint>
#include <ctime>

namespace assay {

using Nanoseconds = std::int64_t;

// Through the vDSO: about 20 ns, no system call.
inline Nanoseconds now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return Nanoseconds{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

inline double seconds(Nanoseconds ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace assay
