// Receives the reports of the interposed functions inside the program. hooks/touch.cpp (touch mode)
// and exact/objects.cpp (exact modes) implement it. No function here may allocate with the
// program's allocator or change errno.
#pragma once

#include <cstddef>
#include <cstdint>

#include "profile/stack/walk.hpp"

namespace assay::numa {

// Set while a thread runs the profiler's own code, whose calls are not recorded.
extern constinit thread_local unsigned in_hook __attribute__((tls_model("initial-exec")));

// Minimum size of a block that is an object of its own. Smaller blocks share one object.
extern std::size_t min_object_bytes;

void track_allocation(const void* block, std::size_t bytes, const stack::Frame& caller);
void track_release(const void* block);
void track_mapping(const void* address, std::size_t bytes, const stack::Frame& caller);
void track_unmapping(const void* address, std::size_t bytes);
void track_policy(const void* address, std::size_t bytes, int mode, std::uint64_t nodes);
void track_thread_policy(int mode, std::uint64_t nodes);
// `tid` 0: the calling thread. Masks of processors 0 to 63 and 64 to 127.
void track_affinity(int tid, std::uint64_t processors, std::uint64_t more_processors);
void track_thread_start();  // called by the new thread
void track_fork_in_child();

// Whether placements are applied with mbind(2): not on emulated nodes.
bool applies_policies();

}  // namespace assay::numa
