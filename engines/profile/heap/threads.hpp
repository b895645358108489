// The threads of the profiled process and their buffers: what process.cpp does with all of them.
#pragma once

#include "profile/heap/process.hpp"

namespace assay::heap {

void register_thread_key();
// Forgets the calling thread and marks all others as ended: they do not exist in a fork's child.
void forget_threads();
// Takes the buffers from all threads. They join the next arena at their next event.
void leave_arena();
// Lets threads record that got no buffer.
void clear_hook_marks();
// Records the resident stack of the calling thread.
void record_residency(Thread& thread);

}  // namespace assay::heap
