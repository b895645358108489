// The same moment by two clocks: the tick counter, which the hooks read, and CLOCK_MONOTONIC_RAW,
// by which the kernel tells when a page fault was. Neither is ever set or slewed, so two moments
// convert every time between them.
#pragma once

#include <cstdint>
#include <ctime>

#include "profile/stack/machine.hpp"

namespace assay::stack {

struct Moment {
    std::uint64_t ticks, ns;
};

inline std::uint64_t raw_time_ns() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u +
           static_cast<std::uint64_t>(t.tv_nsec);
}

// Reads one clock between two readings of the other. A thread that loses its processor meanwhile
// would be wrong by as long as it waits, so the closest of several readings counts. Takes 1 us.
template <class ReadTicks, class ReadNs>
Moment read_moment(ReadTicks read_ticks, ReadNs read_ns) {
    constexpr int attempts = 16;
    Moment moment{};
    std::uint64_t least = UINT64_MAX;
    for (int k = 0; k < attempts; ++k) {
        const std::uint64_t before = read_ticks(), ns = read_ns(), width = read_ticks() - before;
        if (width >= least) continue;
        least = width;
        moment = {before + width / 2, ns};
    }
    return moment;
}

inline Moment read_moment() { return read_moment(ticks, raw_time_ns); }

}  // namespace assay::stack
