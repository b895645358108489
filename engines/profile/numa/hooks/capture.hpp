// Captures the stack of the calling thread as a node of the process's stack tree.
#pragma once

#include <cstddef>

#include "profile/stack/tree.hpp"
#include "profile/stack/walk.hpp"

namespace assay::numa {

extern stack::Tree stacks;

// Returns no_stack while the thread starts or ends, or without memory. The caller has set in_hook.
stack::StackId capture(const stack::Frame& caller);

// Maps zeroed private memory with a raw system call. Returns null if there is none.
void* map_zeroed(std::size_t bytes);

// The bounds of the calling thread's stack.
stack::Bounds stack_bounds();

// Excludes the profiler's own memory from the counts.
void exclude_profiler_memory(const void* address, std::size_t bytes);

}  // namespace assay::numa
