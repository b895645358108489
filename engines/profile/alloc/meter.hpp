// What the measured process reads of itself: ticks, page faults, resident memory. Nothing here
// allocates.
#pragma once

#include <sys/resource.h>

#include <cstddef>
#include <cstdint>

#include "core/clock.hpp"
#include "profile/stack/machine.hpp"

namespace assay::alloc {

using stack::ticks;  // a third of the cost of the clock

// Seconds a tick, held against the clock over some 20 ms: good to a millionth.
double measured_tick();

// Page faults of the calling thread, small and large.
inline std::uint64_t page_faults() {
    rusage used;
    getrusage(RUSAGE_THREAD, &used);
    return static_cast<std::uint64_t>(used.ru_minflt + used.ru_majflt);
}

// Resident memory of this process that no file stands behind, from smaps_rollup, which counts pages
// one by one (statm may be wrong by some hundred pages a processor); with what lies in huge pages
// of hugetlbfs.
struct Resident {
    std::uint64_t bytes;  // 0 where the kernel has no smaps_rollup (before 4.14)
    std::uint64_t huge;   // of them in huge pages
};
Resident resident();

// Bytes that can still be asked for without swapping or being killed: of the machine and of this
// control group.
std::uint64_t memory_left();

}  // namespace assay::alloc
