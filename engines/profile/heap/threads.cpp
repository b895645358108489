#include "profile/heap/threads.hpp"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "profile/heap/bindings.hpp"
#include "profile/heap/own_arena.hpp"

namespace assay::heap {

constinit thread_local Thread* self __attribute__((tls_model("initial-exec"))) = nullptr;
constinit thread_local bool in_getattr_np __attribute__((tls_model("initial-exec"))) = false;

namespace {

std::uint32_t populated_bytes[max_buffers];  // of each buffer; only its owner uses the entry
std::atomic<Thread*> all_threads{nullptr};
std::atomic<std::uint32_t> epoch{1};  // number of the current arena
pthread_key_t thread_key;

void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* limit = nullptr) {
    syscall(SYS_futex, &word, operation, value, limit, nullptr, 0);
}

// Seconds that a thread waits for a free buffer; then recording stops and the program goes on.
constexpr int recorder_timeout_s = 20;

// Whether the recorder still exists. This is known only after attaching: a recorder that started
// the program may be in another PID namespace.
bool has_recorder() {
    const auto recorder = static_cast<pid_t>(header->recorder.load(std::memory_order_relaxed));
    return !is_attached.load(std::memory_order_relaxed) || recorder == 0 ||
           kill(recorder, 0) == 0 || errno != ESRCH;
}

// Stops recording. In an attached process the hooks are removed, too.
void stop_without_recorder() {
    phase.store(Phase::off, std::memory_order_release);
    if (!has_bound_hooks()) return;
    unbind_hooks();
    // A killed recorder has not deleted the arena.
    if (header->recorder_gone.load(std::memory_order_acquire) == 0) discard_arena_memory();
}

// A thread that writes little touches little: the room in its buffer doubles as it fills.
constexpr std::uint32_t first_room = 8 << 10;

// Doubles the room in the thread's buffer. False if it is whole, or if there is no memory.
bool extend_buffer(Thread& thread) {
    std::uint32_t& populated = populated_bytes[thread.buffer_index];
    if (thread.buffer_header == nullptr) return false;
    char* const buffer = reinterpret_cast<char*>(thread.buffer_header);
    const std::uint32_t room = static_cast<std::uint32_t>(
        reinterpret_cast<char*>(thread.encoder.limit + EventEncoder::max_words - 1) - buffer);
    if (room >= buffer_bytes) return false;
    const std::uint32_t more = std::min(2 * room, buffer_bytes);
    if (populated < more && !populate(buffer + populated, more - populated)) return false;
    populated = std::max(populated, more);
    thread.encoder.set_end(reinterpret_cast<std::uint64_t*>(buffer + more));
    return true;
}

void join_arena(Thread& thread) {
    thread.epoch = epoch.load(std::memory_order_relaxed);
    thread.serial = header->thread_count.fetch_add(1, std::memory_order_relaxed);
    thread.sequence = 0;
    thread.is_unnamed = true;
    thread.no_buffer_at = 0;
    thread.step = stack::ticks() >> time_shift;
    thread.depth_low = thread.depth_range = 0;
}

void name_thread(Thread& thread);

enum class Claim : std::uint8_t { done, wait, none };

// Takes a free buffer. Wait: the recorder will free some. None: every buffer is being filled by a
// thread, or there is no memory.
Claim claim_buffer(Thread& thread) {
    const std::uint32_t count = header->buffer_count;
    bool any_full = false;
    // Searched from the first buffer: while the recorder keeps up, few buffers are used, and they
    // stay in the caches.
    for (std::uint32_t index = 0; index < count; ++index) {
        auto expected = static_cast<std::uint32_t>(BufferState::free);
        const std::uint32_t state = header->buffer_states[index].load(std::memory_order_relaxed);
        any_full |= state == static_cast<std::uint32_t>(BufferState::full);
        if (state != expected || !header->buffer_states[index].compare_exchange_strong(
                                     expected, static_cast<std::uint32_t>(BufferState::filling),
                                     std::memory_order_acq_rel))
            continue;
        BufferHeader* head = buffer_at(index);
        if (populated_bytes[index] < first_room && !populate(head, first_room)) {
            header->buffer_states[index].store(static_cast<std::uint32_t>(BufferState::free),
                                               std::memory_order_release);
            return any_full ? Claim::wait : Claim::none;
        }
        populated_bytes[index] = std::max(populated_bytes[index], first_room);
        std::uint32_t used = header->buffers_used.load(std::memory_order_relaxed);
        while (used <= index && !header->buffers_used.compare_exchange_weak(
                                    used, index + 1, std::memory_order_release)) {
        }
        head->used.store(0, std::memory_order_relaxed);
        head->thread = thread.serial;
        head->sequence = thread.sequence++;
        head->step = thread.step;
        thread.buffer_index = index;
        thread.buffer_header = head;
        thread.encoder.start(reinterpret_cast<std::uint64_t*>(head + 1),
                             (populated_bytes[index] - sizeof *head) / sizeof(std::uint64_t));
        return Claim::done;
    }
    if (!any_full)
        header->shortage.store(static_cast<std::uint32_t>(Shortage::buffers),
                               std::memory_order_relaxed);
    return any_full ? Claim::wait : Claim::none;
}

// Takes a free buffer, waiting for one while the recorder is behind. False if there is none, or if
// nothing is recorded any more.
bool acquire_buffer(Thread& thread) {
    const bool is_new = thread.epoch != epoch.load(std::memory_order_relaxed);
    if (is_new) join_arena(thread);
    for (int waited = 0; waited < recorder_timeout_s * 100; ++waited) {
        if (phase.load(std::memory_order_relaxed) == Phase::off) return false;
        if (header->recorder_gone.load(std::memory_order_acquire) != 0) break;
        const std::uint32_t freed_count = header->buffers_freed.load(std::memory_order_acquire);
        if (thread.no_buffer_at == std::uint64_t{freed_count} + 1) return false;
        const Claim claim = claim_buffer(thread);
        if (claim == Claim::done) {
            thread.no_buffer_at = 0;
            if (thread.is_unnamed) {
                thread.is_unnamed = false;
                name_thread(thread);
                record_modules(thread);
            }
            return true;
        }
        if (claim == Claim::none) {
            thread.no_buffer_at = std::uint64_t{freed_count} + 1;
            return false;
        }
        if (!has_recorder()) break;
        const timespec limit{0, 10'000'000};
        futex(header->buffers_freed, FUTEX_WAIT, freed_count, &limit);
    }
    stop_without_recorder();
    return false;
}

void submit_buffer(Thread& thread) {
    if (thread.buffer_header == nullptr) return;
    header->buffer_states[thread.buffer_index].store(static_cast<std::uint32_t>(BufferState::full),
                                                     std::memory_order_release);
    thread.buffer_header = nullptr;
    thread.encoder.stop();
}

}  // namespace

// Records at a thread's exit how many bytes of its stack are resident.
void record_residency(Thread& thread) {
    constexpr std::uint64_t max_pages = 64;
    const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    const stack::Bounds& bounds = thread.unwinder->bounds();
    unsigned char present[max_pages];
    std::uint64_t resident = 0, pages = max_pages;
    for (std::uint64_t end = bounds.high & ~(page - 1); end > bounds.low && pages > 0;) {
        pages = std::min(pages, (end - bounds.low) / page);
        if (mincore(reinterpret_cast<void*>(end - pages * page), pages * page, present) != 0) {
            pages /= 2;  // the main thread's stack is mapped only as far as it has grown
            continue;
        }
        for (std::uint64_t k = 0; k < pages; ++k) resident += (present[k] & 1) * page;
        end -= pages * page;
    }
    if (thread.encoder.next == nullptr ||
        (thread.encoder.next >= thread.encoder.limit && !switch_buffer(thread)))
        return;
    thread.encoder.put(Kind::stack, stack::no_stack, 0, 0, resident);
    publish(thread);
}

namespace {

// Replaces the state of a thread that has exited: in_hook stays set, so nothing is recorded.
Thread exited_thread;

// Other destructors of this thread still free blocks, so this one waits for the last round.
void on_thread_exit(void* state) {
    auto* thread = static_cast<Thread*>(state);
    if (++thread->destructor_rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
        pthread_setspecific(thread_key, thread);
        return;
    }
    thread->in_hook = 1;
    record_residency(*thread);
    submit_buffer(*thread);
    self = &exited_thread;
    thread->ended.store(true, std::memory_order_release);
}

stack::Bounds stack_bounds(Caller caller) {
    if (in_getattr_np || caller == Caller::allocator) {
        // From /proc/self/maps, without an allocation; the thread's control block lies above its
        // stack.
        const auto control_block = static_cast<std::uint64_t>(pthread_self()),
                   stack_address = reinterpret_cast<std::uint64_t>(__builtin_frame_address(0));
        const stack::Bounds mapping = stack::mapping_of(stack_address);
        return {mapping.low, control_block > stack_address && control_block < mapping.high
                                 ? control_block
                                 : mapping.high};
    }
    pthread_attr_t attributes;
    void* low = nullptr;
    std::size_t bytes = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {};
    pthread_attr_getstack(&attributes, &low, &bytes);
    pthread_attr_destroy(&attributes);
    const auto from = reinterpret_cast<std::uint64_t>(low);
    return {from, from + bytes};
}

// The state of a thread that has ended, or a new one.
Thread* acquire_thread() {
    for (Thread* t = all_threads.load(std::memory_order_acquire); t != nullptr; t = t->next) {
        bool ended = true;
        if (t->ended.compare_exchange_strong(ended, false, std::memory_order_acq_rel)) return t;
    }
    void* memory = map_zeroed(sizeof(Thread));
    if (memory == nullptr) return nullptr;
    auto* thread = new (memory) Thread;
    thread->unwinder = static_cast<stack::Unwinder*>(map_zeroed(sizeof(stack::Unwinder)));
    if (thread->unwinder == nullptr) return nullptr;
    thread->next = all_threads.load(std::memory_order_relaxed);
    while (!all_threads.compare_exchange_weak(thread->next, thread, std::memory_order_acq_rel)) {
    }
    return thread;
}

void name_thread(Thread& thread) {
    char name[64] = {};
    const int n = __builtin_snprintf(name, 32, "%ld ", syscall(SYS_gettid));
    prctl(PR_GET_NAME, name + n);
    record_text(thread, Kind::thread, name, strlen(name));
}

}  // namespace

void record_text(Thread& thread, Kind kind, const char* text, std::size_t bytes) {
    while (!thread.encoder.put_text(kind, text, bytes)) {
        if (extend_buffer(thread)) continue;
        submit_buffer(thread);
        if (!acquire_buffer(thread)) return;
    }
    publish(thread);
}

Thread* register_thread(Caller caller) {
    const ErrnoGuard errno_guard;
    const Phase now = phase.load(std::memory_order_acquire);
    if (now == Phase::fresh) {
        if (!start()) return nullptr;
    } else if (now != Phase::active) {
        return nullptr;
    }
    if (self != nullptr) return self;  // created by start()
    Thread* thread = acquire_thread();
    if (thread == nullptr) return nullptr;
    thread->in_hook = 1;
    self = thread;  // before anything that may allocate
    thread->epoch = 0;
    thread->timing_gap = first_gap;
    thread->destructor_rounds = 0;
    thread->pthread_id = static_cast<std::uint64_t>(pthread_self());
    thread->random_state = stack::ticks() | 1;
    thread->bytes_to_sample = next_sample_gap(thread->random_state);
    thread->unwinder->set_bounds(stack_bounds(caller));
    pthread_setspecific(thread_key, thread);
    acquire_buffer(*thread);  // without one, its events are counted as lost until there is one
    if (phase.load(std::memory_order_relaxed) != Phase::active) return nullptr;
    thread->in_hook = 0;
    return thread;
}

bool switch_buffer(Thread& thread) {
    const ErrnoGuard errno_guard;
    if (extend_buffer(thread)) return true;
    header->nodes_used.store(tree.size(),
                             std::memory_order_release);  // before the events that name them
    submit_buffer(thread);
    if (phase.load(std::memory_order_relaxed) == Phase::active && acquire_buffer(thread)) {
        record_modules(thread);
        return true;
    }
    if (header != nullptr) header->lost_events.fetch_add(1, std::memory_order_relaxed);
    return false;
}

void record_depth(Thread& thread, std::uint64_t sp, std::uint32_t stack) {
    const stack::Bounds& bounds = thread.unwinder->bounds();
    if (sp < bounds.low || sp >= bounds.high) return;  // a stack that the program allocated
    const std::uint64_t depth = bounds.high - sp, margin = depth / 8 + 512;
    thread.depth_low = sp - margin;
    thread.depth_range = 2 * margin;
    thread.encoder.put(Kind::stack, stack, 0, 0, depth);
}

void register_thread_key() { pthread_key_create(&thread_key, on_thread_exit); }

void forget_threads() {
    self = nullptr;
    pthread_setspecific(thread_key, nullptr);
    for (Thread* t = all_threads.load(std::memory_order_relaxed); t != nullptr; t = t->next)
        t->ended.store(true, std::memory_order_relaxed);
}

void leave_arena() {
    epoch.fetch_add(1, std::memory_order_relaxed);
    memset(populated_bytes, 0, sizeof populated_bytes);
    for (Thread* t = all_threads.load(std::memory_order_relaxed); t != nullptr; t = t->next) {
        t->buffer_header = nullptr;
        t->encoder.stop();
    }
}

void clear_hook_marks() {
    for (Thread* t = all_threads.load(std::memory_order_relaxed); t != nullptr; t = t->next)
        t->in_hook = 0;
}

}  // namespace assay::heap
