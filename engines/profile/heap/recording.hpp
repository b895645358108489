// Records allocations and frees. Shared by the hooks of malloc, free, operator new and operator
// delete.
#pragma once

#include "profile/heap/process.hpp"

namespace assay::heap {

// Whether the allocation of a block that is about to be freed was recorded. Call it once per block:
// it removes the block from the set of sampled blocks.
bool was_recorded(void* block);

// Records a block that a call has returned. `start`: the time before the call if it is timed, else
// 0.
__attribute__((always_inline)) inline void record_block(Thread& thread, std::uint64_t start,
                                                        std::uint64_t time, Kind kind,
                                                        const void* block, std::uint64_t size,
                                                        const stack::Frame& caller) {
    thread.allocated = block;
    if (block == nullptr) return;
    if (__builtin_expect(filter.is_active, 0) && filter.sample_bytes != 0 &&
        !sampled_blocks.insert(block))
        return count_unsampled();
    if (record(thread, time, kind, block, size, caller) && start != 0)
        record_call_ticks(thread, ticks_between(start, time));
}

// Makes a call that frees a block and records it. Some calls are timed.
template <class Call>
__attribute__((always_inline)) inline void record_release(Thread& thread, const void* block,
                                                          const stack::Frame& caller, Call call) {
    thread.allocated = nullptr;
    const std::uint64_t time = stack::ticks();
    if (!record(thread, time, Kind::free, block, 0, caller) || !should_time_call(thread))
        return call();
    const std::uint64_t start = stack::ticks();
    call();
    record_call_ticks(thread, ticks_between(start, stack::ticks()));
}

}  // namespace assay::heap
