// The threads of the profiled process: registration, buffers, stack depth and exit.
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

#include "profile/heap/arena_file.hpp"
#include "profile/heap/bindings.hpp"

namespace assay::heap {

constinit thread_local Thread* current_thread __attribute__((tls_model("initial-exec"))) = nullptr;
constinit thread_local bool in_getattr_np __attribute__((tls_model("initial-exec"))) = false;

namespace {

std::uint32_t populated_bytes[max_buffers];  // by buffer; only the owner of a buffer uses its entry
std::atomic<Thread*> all_threads{nullptr};
std::atomic<std::uint32_t> epoch{1};  // number of the current arena
pthread_key_t thread_key;

void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* timeout = nullptr) {
    syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

// Limit of a thread's wait for a free buffer. Then recording stops and the program continues.
constexpr int recorder_timeout_s = 20;

// Whether the recorder still exists. True if unknown: a recorder that started the program may be in
// another PID namespace.
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
    // The recorder was killed and has not deleted the arena.
    if (header->recorder_gone.load(std::memory_order_acquire) == 0) discard_arena_memory();
}

// Initial usable bytes of a buffer. The room doubles as the buffer fills, so that a thread with few
// events uses little memory.
constexpr std::uint32_t first_room = 8 << 10;

// Doubles the usable room in the thread's buffer. Returns false if it is the whole buffer or there
// is no memory.
bool extend_buffer(Thread& thread) {
    std::uint32_t& populated = populated_bytes[thread.buffer_index];
    if (thread.buffer_header == nullptr) return false;
    char* const buffer = reinterpret_cast<char*>(thread.buffer_header);
    const std::uint32_t room = static_cast<std::uint32_t>(
        reinterpret_cast<char*>(thread.encoder.limit + EventEncoder::max_words - 1) - buffer);
    if (room >= buffer_bytes) return false;
    const std::uint32_t new_room = std::min(2 * room, buffer_bytes);
    if (populated < new_room && !populate(buffer + populated, new_room - populated)) return false;
    populated = std::max(populated, new_room);
    thread.encoder.set_end(reinterpret_cast<std::uint64_t*>(buffer + new_room));
    return true;
}

void enter_arena(Thread& thread) {
    thread.epoch = epoch.load(std::memory_order_relaxed);
    thread.serial = header->thread_count.fetch_add(1, std::memory_order_relaxed);
    thread.sequence = 0;
    thread.needs_name_record = true;
    thread.failed_at_freed_count = 0;
    thread.coarse_time = stack::ticks() >> time_shift;
    thread.depth_low = thread.depth_range = 0;
}

void record_thread_name(Thread& thread);

enum class ClaimResult : std::uint8_t { done, wait, none };

// Claims a free buffer. `wait`: the recorder will free some. `none`: threads are filling all
// buffers, or there is no memory.
ClaimResult claim_buffer(Thread& thread) {
    const std::uint32_t count = header->buffer_count;
    bool has_full_buffers = false;
    // The search begins at the first buffer. While the recorder keeps up, few buffers are in use,
    // and they stay in the caches.
    for (std::uint32_t index = 0; index < count; ++index) {
        auto expected = static_cast<std::uint32_t>(BufferState::free);
        const std::uint32_t state = header->buffer_states[index].load(std::memory_order_relaxed);
        has_full_buffers |= state == static_cast<std::uint32_t>(BufferState::full);
        if (state != expected || !header->buffer_states[index].compare_exchange_strong(
                                     expected, static_cast<std::uint32_t>(BufferState::filling),
                                     std::memory_order_acq_rel))
            continue;
        BufferHeader* buffer_header = buffer_at(index);
        if (populated_bytes[index] < first_room && !populate(buffer_header, first_room)) {
            header->buffer_states[index].store(static_cast<std::uint32_t>(BufferState::free),
                                               std::memory_order_release);
            return has_full_buffers ? ClaimResult::wait : ClaimResult::none;
        }
        populated_bytes[index] = std::max(populated_bytes[index], first_room);
        std::uint32_t used = header->buffers_used.load(std::memory_order_relaxed);
        while (used <= index && !header->buffers_used.compare_exchange_weak(
                                    used, index + 1, std::memory_order_release)) {
        }
        buffer_header->used.store(0, std::memory_order_relaxed);
        buffer_header->thread = thread.serial;
        buffer_header->sequence = thread.sequence++;
        buffer_header->coarse_time = thread.coarse_time;
        thread.buffer_index = index;
        thread.buffer_header = buffer_header;
        thread.encoder.start(
            reinterpret_cast<std::uint64_t*>(buffer_header + 1),
            (populated_bytes[index] - sizeof *buffer_header) / sizeof(std::uint64_t));
        return ClaimResult::done;
    }
    if (!has_full_buffers)
        header->shortage.store(static_cast<std::uint32_t>(Shortage::buffers),
                               std::memory_order_relaxed);
    return has_full_buffers ? ClaimResult::wait : ClaimResult::none;
}

// Claims a free buffer, and waits for one while the recorder is behind. Returns false if there is
// none or recording has stopped.
bool acquire_buffer(Thread& thread) {
    const bool is_new = thread.epoch != epoch.load(std::memory_order_relaxed);
    if (is_new) enter_arena(thread);
    for (int waited = 0; waited < recorder_timeout_s * 100; ++waited) {
        if (phase.load(std::memory_order_relaxed) == Phase::off) return false;
        if (header->recorder_gone.load(std::memory_order_acquire) != 0) break;
        const std::uint32_t freed_count = header->buffers_freed.load(std::memory_order_acquire);
        if (thread.failed_at_freed_count == std::uint64_t{freed_count} + 1) return false;
        const ClaimResult result = claim_buffer(thread);
        if (result == ClaimResult::done) {
            thread.failed_at_freed_count = 0;
            if (thread.needs_name_record) {
                thread.needs_name_record = false;
                record_thread_name(thread);
                record_modules(thread);
            }
            return true;
        }
        if (result == ClaimResult::none) {
            thread.failed_at_freed_count = std::uint64_t{freed_count} + 1;
            return false;
        }
        if (!has_recorder()) break;
        const timespec timeout{0, 10'000'000};
        futex(header->buffers_freed, FUTEX_WAIT, freed_count, &timeout);
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
    const auto page_bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    const stack::Bounds& bounds = thread.unwinder->bounds();
    unsigned char resident_pages[max_pages];
    std::uint64_t resident = 0, pages = max_pages;
    for (std::uint64_t end = bounds.high & ~(page_bytes - 1); end > bounds.low && pages > 0;) {
        pages = std::min(pages, (end - bounds.low) / page_bytes);
        if (mincore(reinterpret_cast<void*>(end - pages * page_bytes), pages * page_bytes,
                    resident_pages) != 0) {
            pages /= 2;  // the main thread's stack is mapped only as far as it has grown
            continue;
        }
        for (std::uint64_t k = 0; k < pages; ++k) resident += (resident_pages[k] & 1) * page_bytes;
        end -= pages * page_bytes;
    }
    if (thread.encoder.next == nullptr ||
        (thread.encoder.next >= thread.encoder.limit && !switch_buffer(thread)))
        return;
    thread.encoder.put(Kind::stack, stack::no_stack, 0, 0, resident);
    publish(thread);
}

namespace {

// The state of all threads that have exited. in_hook stays set, so that nothing is recorded.
Thread exited_thread;

// Runs in the last round of thread-specific destructors, since earlier ones may still free blocks.
void on_thread_exit(void* state) {
    auto* thread = static_cast<Thread*>(state);
    if (++thread->destructor_rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
        pthread_setspecific(thread_key, thread);
        return;
    }
    thread->in_hook = 1;
    record_residency(*thread);
    submit_buffer(*thread);
    current_thread = &exited_thread;
    thread->ended.store(true, std::memory_order_release);
}

stack::Bounds stack_bounds(Caller caller) {
    if (in_getattr_np || caller == Caller::allocator) {
        // Read from /proc/self/maps, without an allocation. The thread's control block is above its
        // stack.
        const auto control_block = static_cast<std::uint64_t>(pthread_self()),
                   stack_address = reinterpret_cast<std::uint64_t>(__builtin_frame_address(0));
        const stack::Bounds mapping = stack::find_mapping(stack_address);
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
    const auto begin = reinterpret_cast<std::uint64_t>(low);
    return {begin, begin + bytes};
}

// Reuses the state of a thread that has ended, or creates one.
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

void record_thread_name(Thread& thread) {
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
    const Phase current_phase = phase.load(std::memory_order_acquire);
    if (current_phase == Phase::not_started) {
        if (!start()) return nullptr;
    } else if (current_phase != Phase::active) {
        return nullptr;
    }
    if (current_thread != nullptr) return current_thread;  // created by start()
    Thread* thread = acquire_thread();
    if (thread == nullptr) return nullptr;
    thread->in_hook = 1;
    current_thread = thread;  // before anything that may allocate
    thread->epoch = 0;
    thread->calls_between_timings = first_calls_between_timings;
    thread->destructor_rounds = 0;
    thread->pthread_id = static_cast<std::uint64_t>(pthread_self());
    thread->random_state = stack::ticks() | 1;
    thread->bytes_to_sample = next_sample_interval(thread->random_state);
    thread->unwinder->set_bounds(stack_bounds(caller));
    pthread_setspecific(thread_key, thread);
    acquire_buffer(*thread);  // without a buffer, its events are counted as lost
    if (phase.load(std::memory_order_relaxed) != Phase::active) return nullptr;
    thread->in_hook = 0;
    return thread;
}

bool switch_buffer(Thread& thread) {
    const ErrnoGuard errno_guard;
    if (extend_buffer(thread)) return true;
    // Published before the events that refer to the nodes.
    header->nodes_used.store(stack_tree.size(), std::memory_order_release);
    submit_buffer(thread);
    if (phase.load(std::memory_order_relaxed) == Phase::active && acquire_buffer(thread)) {
        record_modules(thread);
        return true;
    }
    if (header != nullptr) header->lost_events.fetch_add(1, std::memory_order_relaxed);
    return false;
}

void count_unsampled() {
    if (header == nullptr) return;
    header->shortage.store(static_cast<std::uint32_t>(Shortage::sampled),
                           std::memory_order_relaxed);
    header->lost_events.fetch_add(1, std::memory_order_relaxed);
}

void record_depth(Thread& thread, std::uint64_t sp, std::uint32_t call_stack_id) {
    const stack::Bounds& bounds = thread.unwinder->bounds();
    if (sp < bounds.low || sp >= bounds.high) return;  // a stack that the program has allocated
    const std::uint64_t depth = bounds.high - sp, margin = depth / 8 + 512;
    thread.depth_low = sp - margin;
    thread.depth_range = 2 * margin;
    thread.encoder.put(Kind::stack, call_stack_id, 0, 0, depth);
}

void register_thread_key() { pthread_key_create(&thread_key, on_thread_exit); }

void reset_threads_in_child() {
    current_thread = nullptr;
    pthread_setspecific(thread_key, nullptr);
    for (Thread* t = all_threads.load(std::memory_order_relaxed); t != nullptr; t = t->next)
        t->ended.store(true, std::memory_order_relaxed);
}

void detach_threads_from_arena() {
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
