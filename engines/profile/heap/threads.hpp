// Operations on all threads of the profiled process and on their buffers, for process.cpp.
#pragma once

#include "profile/heap/process.hpp"

namespace assay::heap {

void register_thread_key();
// Resets the threads in the child of a fork: unregisters the calling thread and marks all others as
// ended, since they do not exist in the child.
void reset_threads_in_child();
// Removes the buffers from all threads. They enter the next arena at their next event.
void detach_threads_from_arena();
// Clears in_hook of all threads, so that threads record again that had no buffer.
void clear_hook_marks();
// Records the resident stack of the calling thread.
void record_residency(Thread& thread);
// Records the resident pages of the objects' variables. The caller has set in_hook.
void record_mappings(Thread& thread);

}  // namespace assay::heap
