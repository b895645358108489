// The monotonic clock. Clocks of different hosts are never compared: every duration that Assay
// reports starts and ends on one host.
#pragma once

#include <cstdint>
#include <ctime>

namespace assay {

using Nanoseconds = std::int64_t;

// Reads the clock through the vDSO: about 20 ns, no system call.
inline Nanoseconds now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return Nanoseconds{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

inline double seconds(Nanoseconds ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace assay
