// Measures the own process: ticks, page faults, resident memory. No function here allocates.
#pragma once

#include <sys/resource.h>

#include <cstddef>
#include <cstdint>

#include "core/clock.hpp"
#include "profile/stack/machine.hpp"

namespace assay::alloc {

using stack::ticks;  // a third of the cost of clock_gettime()

// Seconds per tick, measured over 20 ms; accurate to about 1e-6.
double measure_tick();

// Page faults of the calling thread, minor and major.
inline std::uint64_t page_faults() {
    rusage used;
    getrusage(RUSAGE_THREAD, &used);
    return static_cast<std::uint64_t>(used.ru_minflt + used.ru_majflt);
}

// Resident memory of this process without file mappings, with hugetlbfs pages. From smaps_rollup,
// which counts every page; statm may be off by some hundred pages a processor.
struct ResidentMemory {
    std::uint64_t bytes;  // 0 when the kernel has no smaps_rollup (before 4.14)
    std::uint64_t huge;   // part of `bytes` in huge pages
};
ResidentMemory resident_memory();

}  // namespace assay::alloc
