// The stack of the calling thread, as a node of the process's tree.
#pragma once

#include <cstddef>

#include "profile/stack/tree.hpp"
#include "profile/stack/walk.hpp"

namespace assay::numa {

extern stack::Tree stacks;

// no_stack while the thread starts or ends, or without memory. The caller has set in_hook.
stack::StackId capture(const stack::Frame& caller);

// Zeroed private memory by system call; null when there is none.
void* map_zeroed(std::size_t bytes);

// The bounds of the calling thread's stack.
stack::Bounds stack_bounds();

// Called with the profiler's own memory, so that it is not counted as the program's.
void note_own_memory(const void* address, std::size_t bytes);

}  // namespace assay::numa
