// Finds the bounds of stacks that the C library does not know: those of coroutines and of signal
// handlers.
//
// It reads /proc/self/maps for each new stack, and again after an munmap. Allocators also unmap
// memory without calling a hook, so mincore() checks a cached mapping before each use, which takes
// a microsecond.
#pragma once

#include <atomic>
#include <cstdint>

#include "profile/stack/walk.hpp"

namespace assay::stack {

// Incremented after each munmap and mremap.
extern std::atomic<std::uint32_t> unmap_count;

// The readable and writable mapping that holds a stack pointer; empty if there is none.
Bounds find_mapping(std::uint64_t sp);

class Regions {
public:
    // The range from the stack pointer upwards, at most 1 MiB; empty if the stack pointer is in no
    // readable and writable mapping.
    Bounds bounds_above(std::uint64_t sp);

private:
    static constexpr unsigned max_mappings = 32;

    Bounds mappings_[max_mappings] = {};
    unsigned next_ = 0;
    std::uint32_t unmap_count_ = 0;
};

}  // namespace assay::stack
