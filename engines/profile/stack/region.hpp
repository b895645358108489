// Bounds of stacks that the C library does not know: of coroutines and of signal handlers.
//
// /proc/self/maps is read when a stack is met for the first time, and again after an munmap.
// Allocators also unmap without a hook being called, so mincore checks the mapping before each use,
// which takes a microsecond.
#pragma once

#include <atomic>
#include <cstdint>

#include "profile/stack/walk.hpp"

namespace assay::stack {

// Incremented after each munmap and mremap.
extern std::atomic<std::uint32_t> unmap_count;

// The readable and writable mapping that holds a stack pointer; empty if there is none.
Bounds mapping_of(std::uint64_t sp);

class Regions {
public:
    // From the stack pointer upwards, at most 1 MiB; empty if it lies in no readable and writable
    // mapping.
    Bounds bounds_above(std::uint64_t sp);

private:
    static constexpr unsigned max_mappings = 32;

    Bounds mappings_[max_mappings] = {};
    unsigned next_ = 0;
    std::uint32_t unmap_count_ = 0;
};

}  // namespace assay::stack
