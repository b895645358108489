// The recording in the profiled process: the state of its threads, and the functions by which hooks
// record events.
//
// A hook captures a stack and makes a few stores, without a lock: each thread fills its own buffer,
// and acquires a free one from the shared table when it is full. No function here allocates, throws
// or calls a hooked function.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "preload/errno_guard.hpp"
#include "profile/heap/arena.hpp"
#include "profile/heap/event_encoder.hpp"
#include "profile/heap/filter.hpp"
#include "profile/heap/python.hpp"
#include "profile/stack/unwinder.hpp"

namespace assay::heap {

struct Thread {
    EventEncoder encoder;
    std::uint64_t coarse_time = 0;  // time of the last event in steps: ticks >> time_shift
    BufferHeader* buffer_header = nullptr;
    std::uint32_t in_hook = 1;        // set inside a hook, whose own calls are not recorded
    const void* allocated = nullptr;  // the block allocated last; null after a free
    const void* deleted = nullptr;    // the block that an allocator's operator delete is freeing
    // Calls until the next timed call, and then between timed calls.
    std::uint32_t calls_until_timed = 0, calls_between_timings = 0;
    std::uint32_t serial = 0;
    std::uint32_t sequence = 0;  // number of its next buffer
    std::uint32_t buffer_index = 0;
    // 1 + buffers_freed when no buffer was available, so that the thread tries again only after
    // the recorder has freed some; 0: the last attempt succeeded.
    std::uint64_t failed_at_freed_count = 0;
    int destructor_rounds = 0;  // rounds of thread-specific destructors so far
    std::uint32_t epoch = 0;    // number of the arena that it uses
    // Its depth is recorded again when the stack pointer leaves [depth_low, depth_low +
    // depth_range].
    std::uint64_t depth_low = 0, depth_range = 0;
    std::int64_t bytes_to_sample = 0;
    std::uint64_t random_state = 0;
    stack::Unwinder* unwinder = nullptr;
    // The unwinder's count of rules when the objects were listed last.
    std::uint64_t rules_at_list = 0;
    PythonFrames* python_frames = nullptr;  // null until the thread runs Python
    std::uint64_t pthread_id = 0;           // pthread_self()
    Thread* next = nullptr;                 // in the list of all threads; entries are reused
    std::atomic<bool> ended{false};
    bool needs_name_record = false;  // the thread's name is not recorded yet
};

using preload::ErrnoGuard;

enum class Phase : std::uint8_t { not_started, starting, active, off };

extern std::atomic<Phase> phase;
extern std::atomic<bool> is_attached;  // recording began in a running process
extern constinit thread_local Thread* current_thread __attribute__((tls_model("initial-exec")));

// Set inside pthread_getattr_np, which allocates while it holds a lock. A nested call would
// deadlock.
extern constinit thread_local bool in_getattr_np __attribute__((tls_model("initial-exec")));

// Starts recording if the environment asks for it; at most once per process image.
bool start();

// Starts again in an attached process, with a new arena and the current settings. No thread may be
// inside a hook.
bool restart();
// Whether this process has been recorded from its start.
bool is_recorded_from_start();
// Stops recording; the process continues.
void stop();

// Notes that this process exits. Does nothing in the child of a vfork, which shares its parent's
// memory.
void note_exit();
// Reverts note_exit(): the process continues, since an exec has failed.
void cancel_exit();

// The caller of a hook: the program, or its allocator (through its mmap, munmap or sbrk), which may
// hold its lock, so that the hook must not allocate.
enum class Caller : std::uint8_t { program, allocator };

// The calling thread's state, created at its first call; null while nothing is recorded.
Thread* register_thread(Caller caller);

// Submits the full buffer and acquires another. Returns false if there is none or recording has
// stopped.
bool switch_buffer(Thread& thread);

// Counts an event of a sampled block for which the table of sampled blocks has no room.
void count_unsampled();

// Records a text. The caller has set in_hook.
void record_text(Thread& thread, Kind kind, const char* text, std::size_t bytes);

// Maps zeroed memory with a raw system call, since mmap() is hooked. Returns null if there is none.
void* map_zeroed(std::size_t bytes);

// Records the list of loaded objects if it has changed. The caller has set in_hook.
void record_modules(Thread& thread);
// Calls record_modules() if the last stack contains code that may belong to a new object.
__attribute__((noinline)) void check_new_code(Thread& thread);
void invalidate_modules();  // makes the next record_modules() record the list

// Called around dlclose. Before it, the list of objects is recorded. After it, all that is cached
// about addresses becomes invalid.
void before_unloading();
void after_unloading();

// The calling thread; null if nothing is recorded: before the start, inside a hook, or after the
// stop.
inline Thread* recording_thread(Caller caller = Caller::program) {
    Thread* thread = current_thread;
    if (__builtin_expect(thread == nullptr, 0)) thread = register_thread(caller);
    return thread == nullptr || thread->in_hook != 0 ? nullptr : thread;
}

// Whether a new block of this size is recorded.
inline bool is_selected(Thread& thread, std::uint64_t size) {
    if (__builtin_expect(!filter.is_active, 1)) return true;
    if (size < filter.min_block_bytes) return false;
    if (filter.sample_bytes == 0) return true;
    thread.bytes_to_sample -= static_cast<std::int64_t>(size);
    if (thread.bytes_to_sample > 0) return false;
    thread.bytes_to_sample = next_sample_interval(thread.random_state);
    return true;
}

// A sample of the calls is timed with one more reading of the clock: every 31st of a thread's first
// calls, later every 127th. The last interval is odd, so that both malloc and free are timed in a
// program that calls them alternately.
// Untimed calls between two timed ones.
inline constexpr std::uint32_t first_calls_between_timings = 30, last_calls_between_timings = 126;
inline bool should_time_call(Thread& thread) {
    if (thread.calls_until_timed-- > 0) return false;
    thread.calls_until_timed = thread.calls_between_timings;
    thread.calls_between_timings += thread.calls_between_timings < last_calls_between_timings;
    return true;
}
inline std::uint32_t ticks_between(std::uint64_t begin, std::uint64_t end) {
    return static_cast<std::uint32_t>(end - begin > 0xffffffff ? 0xffffffff : end - begin);
}

extern stack::Tree stack_tree;

inline void publish(Thread& thread) {
    thread.buffer_header->used.store(
        static_cast<std::uint32_t>(reinterpret_cast<char*>(thread.encoder.next) -
                                   reinterpret_cast<char*>(thread.buffer_header + 1)),
        std::memory_order_release);
}

// Records the depth of the stack after it has changed by more than an eighth.
__attribute__((noinline)) void record_depth(Thread& thread, std::uint64_t sp,
                                            std::uint32_t call_stack_id);
inline void note_depth(Thread& thread, std::uint64_t sp, std::uint32_t call_stack_id) {
    if (__builtin_expect(sp - thread.depth_low > thread.depth_range, 0))
        record_depth(thread, sp, call_stack_id);
}

// The stack of the caller, with its Python frames. The caller has set in_hook.
__attribute__((always_inline)) inline stack::StackId capture_stack(Thread& thread,
                                                                   const stack::Frame& caller) {
    const auto [native, extension] = thread.unwinder->look_up(caller, stack_tree);
    if (__builtin_expect(extension == nullptr, 0)) check_new_code(thread);
    return __builtin_expect(python_ready.load(std::memory_order_acquire), 0)
               ? add_python_frames(thread, native, extension)
               : native;
}

// Records an event. `time`: after an allocation, before a free. `capture` returns the caller's
// stack and is called with in_hook set. The fast path calls nothing that changes errno; the slow
// paths restore it. Returns false if the event could not be recorded. Inlined in each hook, where
// `kind` is a constant.
template <class Capture>
__attribute__((always_inline)) inline bool record(Thread& thread, std::uint64_t time, Kind kind,
                                                  const void* block, std::uint64_t size,
                                                  const stack::Frame& caller, Capture capture) {
    thread.in_hook = 1;
    const stack::StackId stack = capture();
    if (__builtin_expect(thread.encoder.next >= thread.encoder.limit, 0) &&
        !switch_buffer(thread)) {
        thread.in_hook = 0;
        return false;
    }
    const auto address = reinterpret_cast<std::uint64_t>(block);
    const std::uint64_t coarse_time = time >> time_shift;
    // The clocks of two processors may differ a little.
    const std::uint64_t steps =
        coarse_time > thread.coarse_time ? coarse_time - thread.coarse_time : 0;
    thread.coarse_time += steps;
    note_depth(thread, caller.sp, stack);
    thread.encoder.put(kind, stack, steps, address, size);
    publish(thread);
    thread.in_hook = 0;
    return true;
}

__attribute__((always_inline)) inline bool record(Thread& thread, std::uint64_t time, Kind kind,
                                                  const void* block, std::uint64_t size,
                                                  const stack::Frame& caller) {
    return record(thread, time, kind, block, size, caller,
                  [&] { return capture_stack(thread, caller); });
}

// Records the duration of the call whose event was recorded last. Its buffer has room for it.
inline void record_call_ticks(Thread& thread, std::uint32_t ticks) {
    thread.encoder.put_call_ticks(ticks);
    publish(thread);
}

}  // namespace assay::heap
