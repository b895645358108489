// Stacks of the program's own making, of coroutines and signal handlers: how far the memory goes in
// which a stack pointer lies.
//
// The kernel's list of mappings is read when a stack is met for the first time, and again after
// memory has been given back; a look at what is mapped, which is a microsecond, comes before every
// use, since allocators give back unseen.
#pragma once

#include <atomic>
#include <cstdint>

#include "profile/stack/walk.hpp"

namespace assay::stack {

// Raised when memory has been given back.
extern std::atomic<std::uint32_t> given_back;

// The memory around a stack pointer that can be read and written; empty: none.
Bounds mapping_of(std::uint64_t sp);

class Regions {
public:
    // From the stack pointer on upwards, a megabyte at most; empty: it lies in nothing that can be
    // read and written.
    Bounds above(std::uint64_t sp);

private:
    static constexpr unsigned most = 32;

    Bounds known_[most] = {};
    unsigned next_ = 0;
    std::uint32_t given_back_ = 0;
};

}  // namespace assay::stack
