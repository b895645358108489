// Receives the reports of the interposed functions inside the program: the ring of touch mode, or
// the object table of the exact mode's runtime. Nothing here may allocate through the program's
// allocator or change errno.
#pragma once

#include <cstddef>
#include <cstdint>

#include "profile/stack/walk.hpp"

namespace assay::numa {

// Set while a thread runs the profiler's own code, whose calls are not recorded.
extern constinit thread_local unsigned in_hook __attribute__((tls_model("initial-exec")));

// Smallest block that is an object of its own; smaller ones share pages.
extern std::size_t at_least;

void track_allocation(const void* block, std::size_t bytes, const stack::Frame& caller);
void track_release(const void* block);
void track_mapping(const void* address, std::size_t bytes, const stack::Frame& caller);
void track_unmapping(const void* address, std::size_t bytes);
void track_policy(const void* address, std::size_t bytes, int mode, std::uint64_t nodes);
void track_thread_policy(int mode, std::uint64_t nodes);
// `tid` 0: the calling thread. Processors 0 to 127, a bit each.
void track_affinity(int tid, std::uint64_t processors, std::uint64_t more_processors);
void track_thread_start();  // called by the new thread
void track_fork_in_child();

// Whether the kernel is asked for placements: not where nodes are emulated.
bool places_for_real();

}  // namespace assay::numa
