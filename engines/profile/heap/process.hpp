// The profiled process's own side: its arena, its threads' buffers, and what a hook writes.
//
// A hook costs the capture of a stack and a few stores. No lock is taken on that way: each thread
// fills a buffer of its own, and takes a free one from the shared table when it is full. Nothing
// here allocates, throws, or calls a function that is hooked.
#pragma once

#include <errno.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "profile/heap/arena.hpp"
#include "profile/heap/filter.hpp"
#include "profile/heap/python.hpp"
#include "profile/heap/words.hpp"
#include "profile/stack/unwinder.hpp"

namespace assay::heap {

struct Thread {
    Words words;
    std::uint64_t step = 0;  // of the last event: ticks >> time_shift
    BufferHead* head = nullptr;
    std::uint32_t busy = 1;           // inside a hook: what it calls is not the program's
    std::uint32_t turn = 0, gap = 0;  // calls until one has its time taken, and until the one after
    std::uint32_t serial = 0;
    std::uint32_t sequence = 0;
    std::uint32_t buffer = 0;
    int rounds = 0;           // of the destructors of this thread, so far
    std::uint32_t epoch = 0;  // the arena that it takes part in
    std::uint64_t
        low = 0,
        range = 0;  // where its stack pointer may be without a new event: from, and how far up
    std::int64_t until_sample = 0;  // bytes until one is taken
    std::uint64_t random = 0;
    stack::Unwinder* unwinder = nullptr;
    std::uint64_t rules = 0;         // of its, when objects were last looked for
    PythonFrames* python = nullptr;  // where it runs any
    std::uint64_t pthread = 0;       // as pthread_self has it
    Thread* next = nullptr;          // in the list of all; an ended one is used again
    std::atomic<bool> ended{false};
};

// The program's errno, over what is done here in its name.
class ErrnoKept {
public:
    ErrnoKept() : value_(errno) {}
    ~ErrnoKept() { errno = value_; }

private:
    int value_;
};

enum class Phase : std::uint8_t { fresh, starting, active, off };

extern std::atomic<Phase> phase;
extern constinit thread_local Thread* self __attribute__((tls_model("initial-exec")));

// The thread is in pthread_getattr_np, which allocates while it holds the lock that it would need
// if it were called again.
extern constinit thread_local bool asks_for_attributes __attribute__((tls_model("initial-exec")));

// Starts recording if the environment asks for it; at most once a process image.
bool start();

// Begins anew, in a process that runs: with an arena of its own, as the settings say now. No thread
// is inside a hook.
bool start_again();
// The process goes on without us.
void stop();

// This process ends now, and of its own will. The child of a vfork only borrows its parent's
// memory.
void ends_by_itself();

// The calling thread's state, made when it is first needed; null while nothing is to be recorded.
Thread* attach();

// The buffer is full: hands it over and takes another. False when there is none to be had any more.
bool turn_over(Thread& thread);

// A text, in whole words; the caller is busy.
void record_text(Thread& thread, Kind kind, const char* text, std::size_t bytes);

// Not by mmap(), which is hooked; null when there is none.
void* map_zeroed(std::size_t bytes);

// Writes the list of loaded objects, when it has changed; the thread is busy.
void note_modules(Thread& thread);
// The same where the stack that has just been followed goes through code that may be a new
// object's.
__attribute__((noinline)) void note_new_code(Thread& thread);
void forget_modules();  // then it has changed

// Around dlclose: what is about to go is written down first; what was learned of it no longer
// holds.
void before_unloading();
void after_unloading();

// The thread that is to record, or null: not started, inside a hook, or no more.
inline Thread* recording() {
    Thread* thread = self;
    if (__builtin_expect(thread == nullptr, 0)) thread = attach();
    return thread == nullptr || thread->busy != 0 ? nullptr : thread;
}

// Whether a new block is to be recorded, by its size.
inline bool is_wanted(Thread& thread, std::uint64_t size) {
    if (__builtin_expect(!filter.is_on, 1)) return true;
    if (size < filter.at_least) return false;
    if (filter.sample == 0) return true;
    thread.until_sample -= static_cast<std::int64_t>(size);
    if (thread.until_sample > 0) return false;
    thread.until_sample = next_gap(thread.random);
    return true;
}

// A call now and then has its time taken, by one more reading of the clock: of a thread's first
// ones every 31st, then fewer. In the end the number is odd, so that of a program that allocates
// and frees in turn both are timed.
inline constexpr std::uint32_t first_gap = 30, last_gap = 126;  // calls in between
inline bool takes_cost(Thread& thread) {
    if (thread.turn-- > 0) return false;
    thread.turn = thread.gap;
    thread.gap += thread.gap < last_gap;
    return true;
}
inline std::uint32_t ticks_between(std::uint64_t from, std::uint64_t to) {
    return static_cast<std::uint32_t>(to - from > 0xffffffff ? 0xffffffff : to - from);
}

extern stack::Tree tree;

inline void publish(Thread& thread) {
    thread.head->used.store(static_cast<std::uint32_t>(reinterpret_cast<char*>(thread.words.at) -
                                                       reinterpret_cast<char*>(thread.head + 1)),
                            std::memory_order_release);
}

// How deep the stack is, when that has changed by more than an eighth.
__attribute__((noinline)) void record_depth(Thread& thread, std::uint64_t sp, std::uint32_t stack);
inline void note_depth(Thread& thread, std::uint64_t sp, std::uint32_t stack) {
    if (__builtin_expect(sp - thread.low > thread.range, 0)) record_depth(thread, sp, stack);
}

// Of the caller, with what it runs of Python. The thread is busy.
__attribute__((always_inline)) inline stack::StackId stack_of(Thread& thread,
                                                              const stack::Frame& caller) {
    const auto [native, note] = thread.unwinder->look_up(caller, tree);
    if (__builtin_expect(note == nullptr, 0)) note_new_code(thread);
    return __builtin_expect(reads_python.load(std::memory_order_acquire), 0)
               ? with_python(thread, native, note)
               : native;
}

// `time`: after what gives a block, before what takes one. `stack_now`: gives the caller's, when
// the thread is busy. The hot way calls nothing that could change errno; the slow ones keep it.
// False when it could not be recorded. Inlined in each hook, where the kind is known.
template <class Stack>
__attribute__((always_inline)) inline bool record(Thread& thread, std::uint64_t time, Kind kind,
                                                  const void* block, std::uint64_t size,
                                                  const stack::Frame& caller, Stack stack_now) {
    thread.busy = 1;
    const stack::StackId stack = stack_now();
    if (__builtin_expect(thread.words.at >= thread.words.end, 0) && !turn_over(thread)) {
        thread.busy = 0;
        return false;
    }
    const auto address = reinterpret_cast<std::uint64_t>(block);
    const std::uint64_t step = time >> time_shift;
    const std::uint64_t steps = step > thread.step
                                    ? step - thread.step
                                    : 0;  // clocks of two processors may differ a little
    thread.step += steps;
    note_depth(thread, caller.sp, stack);
    thread.words.put(kind, stack, steps, address, size);
    publish(thread);
    thread.busy = 0;
    return true;
}

__attribute__((always_inline)) inline bool record(Thread& thread, std::uint64_t time, Kind kind,
                                                  const void* block, std::uint64_t size,
                                                  const stack::Frame& caller) {
    return record(thread, time, kind, block, size, caller,
                  [&] { return stack_of(thread, caller); });
}

// Of the event that was recorded last, whose buffer has room for it.
inline void record_cost(Thread& thread, std::uint32_t ticks) {
    thread.words.put_cost(ticks);
    publish(thread);
}

}  // namespace assay::heap
