// The preloaded library of touch mode (which records first touches of pages): writes the events
// that the hooks report into the process's ring (hooks/ring.hpp). Without a ring, every call passes
// through unchanged.
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "profile/numa/hooks/apply.hpp"
#include "profile/numa/hooks/capture.hpp"
#include "profile/numa/hooks/ring.hpp"
#include "profile/numa/hooks/tracker.hpp"
#include "profile/stack/populate.hpp"
#include "profile/stack/region.hpp"
#include "profile/stack/unwinder.hpp"

namespace assay::numa {
namespace {

// Limit of the waits for a recorder that does not run: for room in the ring, then the event is
// lost, and for its final scan. A busy machine may not run it for seconds.
constexpr int recorder_wait_ms = 5000;

RingHeader* header = nullptr;
Event* events = nullptr;
constexpr std::uint64_t events_per_step = 1024;  // 64 KiB
std::atomic<std::uint64_t> ready_events{0};      // events that may be touched
char folder[PATH_MAX];
constinit thread_local std::uint32_t current_tid __attribute__((tls_model("initial-exec"))) = 0;

std::uint64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(t.tv_nsec);
}

void sleep_1_ms() {
    const timespec pause{0, 1'000'000};
    syscall(SYS_nanosleep, &pause, nullptr);
}

// Returns false if the recorder was killed: nobody reads the pipe. Uses raw system calls, which are
// not cancellation points. A program that does not see the pipe cannot wake the recorder, whose
// next poll finds the events.
bool wake_recorder() {
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/%s", folder, wake_pipe_name);
    const long fd = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return errno != ENXIO;
    syscall(SYS_write, fd, "", 1L);
    syscall(SYS_close, fd);
    return true;
}

// A recorder that freed nothing during one wait is not waited for again until it goes on.
bool wait_for_room(std::uint64_t number) {
    static constinit std::atomic<std::uint64_t> stalled_tail{UINT64_MAX};
    const std::uint64_t first_tail = header->tail.load(std::memory_order_acquire);
    if (stalled_tail.load(std::memory_order_relaxed) == first_tail || !wake_recorder())
        return false;
    for (int waited = 0; number - header->tail.load(std::memory_order_acquire) >= ring_events;
         ++waited) {
        if (header->recorder_gone.load() != 0) return false;
        if (waited == recorder_wait_ms) {
            stalled_tail.store(first_tail, std::memory_order_relaxed);
            return false;
        }
        sleep_1_ms();
    }
    return true;
}

// Makes the memory of an event and of all events before it accessible. The ring has no memory at
// first, since most programs need little of it. Returns false if there is none.
bool make_ready(std::uint64_t number) {
    std::uint64_t ready = ready_events.load(std::memory_order_acquire);
    while (number >= ready && ready < ring_events) {
        if (!stack::populate(events + ready, events_per_step * sizeof(Event))) return false;
        const std::uint64_t end = ready + events_per_step;
        if (ready_events.compare_exchange_weak(ready, end, std::memory_order_acq_rel)) ready = end;
    }
    return true;
}
static_assert(ring_events % events_per_step == 0);

void send(EventKind kind, const void* address, std::uint64_t bytes, stack::StackId stack = 0,
          int mode = 0, std::uint64_t mask = 0, std::uint64_t more_mask = 0, int tid = 0) {
    if (header == nullptr) return;
    std::uint64_t number = header->head.load(std::memory_order_relaxed);
    do {
        const bool has_room = number - header->tail.load(std::memory_order_acquire) < ring_events ||
                              wait_for_room(number);
        if (!has_room || !make_ready(number)) {
            header->lost.fetch_add(1);
            return;
        }
    } while (!header->head.compare_exchange_weak(number, number + 1));
    if (current_tid == 0) current_tid = static_cast<std::uint32_t>(syscall(SYS_gettid));
    Event& event = events[number % ring_events];
    event.ns = now_ns();
    event.kind = kind;
    event.tid = tid != 0 ? static_cast<std::uint32_t>(tid) : current_tid;
    event.address = reinterpret_cast<std::uint64_t>(address);
    event.bytes = bytes;
    event.mask = mask;
    event.more_mask = more_mask;
    event.stack = stack;
    event.mode = mode;
    event.sequence.store(number + 1, std::memory_order_release);
    if (number % (ring_events / 2) == ring_events / 2 - 1) wake_recorder();
}

void* map_ring(int fd) {
    if (ring_bytes > stack::max_file_bytes()) return nullptr;
    if (ftruncate(fd, static_cast<off_t>(ring_bytes)) != 0) return nullptr;
    const long address =
        syscall(SYS_mmap, nullptr, ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0L);
    return address == -1 ? nullptr : reinterpret_cast<void*>(address);
}

// Creates the ring of this process. The file name holds the time, since an exec keeps the pid. The
// file gets this name when it is complete.
bool open_ring() {
    header = nullptr;
    ready_events = 0;
    const auto pid = static_cast<int>(syscall(SYS_getpid));
    char path[PATH_MAX + 48], temporary_path[PATH_MAX + 56];
    snprintf(path, sizeof path, "%s/%d.%llu.ring", folder, pid,
             static_cast<unsigned long long>(now_ns()));
    snprintf(temporary_path, sizeof temporary_path, "%s.part", path);
    const int fd = open(temporary_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return false;
    void* memory = map_ring(fd);
    close(fd);
    auto* base = static_cast<char*>(memory);
    stacks.release();
    if (memory == nullptr || !stack::populate(memory, ring_header_bytes) ||
        !stacks.reserve(ring_stack_nodes, reinterpret_cast<stack::Node*>(base + ring_nodes_offset),
                        stack::populate)) {
        if (memory != nullptr) syscall(SYS_munmap, memory, ring_bytes);
        unlink(temporary_path);
        return false;
    }
    events = reinterpret_cast<Event*>(base + ring_header_bytes);
    auto* new_header = reinterpret_cast<RingHeader*>(base);
    new_header->pid = pid;
    new_header->parent = getppid();
    std::atomic_ref(new_header->magic).store(ring_magic, std::memory_order_release);
    if (rename(temporary_path, path) != 0) {
        unlink(temporary_path);
        return false;
    }
    header = new_header;
    send(EventKind::profiler_memory, memory, ring_bytes);
    track_thread_start();
    wake_recorder();
    return true;
}

__attribute__((constructor)) void open_ring_at_load() {
    const char* folder_setting = getenv(rings_variable);
    if (folder_setting == nullptr || strlen(folder_setting) >= sizeof folder) return;
    const int error = errno;
    ++in_hook;
    strcpy(folder, folder_setting);
    if (const char* bytes = getenv(min_object_variable))
        min_object_bytes = static_cast<std::size_t>(strtoull(bytes, nullptr, 10));
    if (open_ring()) {
        pthread_atfork(nullptr, nullptr, track_fork_in_child);
        read_plan();
    }
    --in_hook;
    errno = error;
}

__attribute__((destructor)) void wait_for_final_scan() {
    if (header == nullptr || header->pid != syscall(SYS_getpid)) return;
    ++in_hook;
    send(EventKind::finish, nullptr, 0);
    if (wake_recorder())
        for (int waited = 0; waited < recorder_wait_ms && header->acknowledged.load() == 0 &&
                             header->recorder_gone.load() == 0;
             ++waited)
            sleep_1_ms();
    --in_hook;
}

}  // namespace

void track_allocation(const void* block, std::size_t bytes, const stack::Frame& caller) {
    if (header == nullptr) return;
    const stack::StackId stack = capture(caller);
    send(EventKind::allocate, block, bytes, stack);
    apply_plan(block, bytes, stack);
}

void track_release(const void* block) { send(EventKind::release, block, 0); }

void track_mapping(const void* address, std::size_t bytes, const stack::Frame& caller) {
    if (header == nullptr) return;
    const stack::StackId stack = capture(caller);
    send(EventKind::map, address, bytes, stack);
    apply_plan(address, bytes, stack);
}

void track_unmapping(const void* address, std::size_t bytes) {
    stack::unmap_count.fetch_add(1, std::memory_order_release);
    send(EventKind::unmap, address, bytes);
}

void track_policy(const void* address, std::size_t bytes, int mode, std::uint64_t nodes) {
    send(EventKind::policy, address, bytes, 0, mode, nodes);
}

void track_thread_policy(int mode, std::uint64_t nodes) {
    send(EventKind::thread_policy, nullptr, 0, 0, mode, nodes);
}

void track_affinity(int tid, std::uint64_t processors, std::uint64_t more_processors) {
    send(EventKind::affinity, nullptr, 0, 0, 0, processors, more_processors, tid);
}

void track_thread_start() {
    if (header == nullptr) return;
    const stack::Bounds bounds = stack_bounds();
    send(EventKind::thread, reinterpret_cast<const void*>(bounds.low), bounds.size());
}

void track_fork_in_child() {
    ++in_hook;
    current_tid = 0;
    // The child numbers its stacks from the start.
    stack::generation.fetch_add(1, std::memory_order_release);
    open_ring();
    --in_hook;
}

void exclude_profiler_memory(const void* address, std::size_t bytes) {
    send(EventKind::profiler_memory, address, bytes);
}

bool applies_policies() { return getenv(nodes_variable) == nullptr; }

}  // namespace assay::numa
