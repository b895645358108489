// The profiled process's own side: its arena, its threads' buffers, and what a hook writes.
//
// A hook costs the capture of a stack and seven stores. No lock is taken on that way: each thread fills a
// buffer of its own, and takes a free one from the shared table when it is full. Nothing here allocates,
// throws, or calls a function that is hooked.
#pragma once

#include <x86intrin.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "profile/heap/arena.hpp"
#include "profile/stack/unwinder.hpp"

namespace assay::heap {

struct Thread {
    Event* at = nullptr;   // where the next event goes
    Event* end = nullptr;  // of the buffer
    BufferHead* head = nullptr;
    std::uint32_t busy = 1;   // inside a hook: what it calls is not the program's
    std::uint32_t turn = 0;   // calls until one has its time taken
    std::uint32_t serial = 0;
    std::uint32_t sequence = 0;
    std::uint32_t buffer = 0;
    int rounds = 0;           // of the destructors of this thread, so far
    std::uint32_t epoch = 0;  // of the process when it was attached: a fork makes it stale
    stack::Unwinder* unwinder = nullptr;
    Thread* next = nullptr;  // in the list of all; an ended one is used again
    std::atomic<bool> ended{false};
};

enum class Phase : std::uint8_t { fresh, starting, active, off };

extern std::atomic<Phase> phase;
extern thread_local Thread* self __attribute__((tls_model("initial-exec")));

// Starts recording if the environment asks for it; at most once a process image.
bool start();

// The calling thread's state, made when it is first needed; null while nothing is to be recorded.
Thread* attach();

// The buffer is full: hands it over and takes another. False when there is none to be had any more.
bool turn_over(Thread& thread);

// Writes the list of loaded objects, when it has changed; the thread is busy.
void note_modules(Thread& thread);

// Around dlclose: what is about to go is written down first; what was learned of it no longer holds.
void before_unloading();
void after_unloading();

// The thread that is to record, or null: not started, inside a hook, or no more.
inline Thread* recording() {
    Thread* thread = self;
    if (__builtin_expect(thread == nullptr, 0)) thread = attach();
    return thread == nullptr || thread->busy != 0 ? nullptr : thread;
}

// Every `cost_every`-th call has its time taken: one more reading of the clock. Odd, so that of a program that
// allocates and frees in turn both are timed.
inline constexpr std::uint32_t cost_every = 15;
inline bool takes_cost(Thread& thread) {
    if (thread.turn-- > 0) return false;
    thread.turn = cost_every - 1;
    return true;
}
inline std::uint32_t ticks_between(std::uint64_t from, std::uint64_t to) {
    return static_cast<std::uint32_t>(to - from > 0xffffffff ? 0xffffffff : to - from);
}

extern stack::Tree tree;

// Returns the event, so that its cost can follow; null when it could not be recorded. `time`: after what gives a
// block, before what takes one. The hot way calls nothing that could change errno; the slow ones keep it.
inline Event* record(Thread& thread, std::uint64_t time, Kind kind, const void* address, std::uint64_t size,
                     const stack::Frame& caller) {
    thread.busy = 1;
    const std::uint32_t stack = thread.unwinder->capture(caller, tree);
    if (__builtin_expect(thread.at == thread.end, 0) && !turn_over(thread)) {
        thread.busy = 0;
        return nullptr;
    }
    Event* event = thread.at++;
    event->time = time;
    event->address = reinterpret_cast<std::uint64_t>(address) | (static_cast<std::uint64_t>(kind) << kind_shift);
    event->size = size;
    event->stack = stack;
    event->cost = 0;
    thread.head->used.store(static_cast<std::uint32_t>(reinterpret_cast<char*>(thread.at) -
                                                       reinterpret_cast<char*>(thread.head + 1)),
                            std::memory_order_release);
    thread.busy = 0;
    return event;
}

}  // namespace assay::heap
