#include "profile/heap/process.hpp"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "profile/heap/bindings.hpp"
#include "profile/heap/settings.hpp"

namespace assay::heap {

std::atomic<Phase> phase{Phase::fresh};
constinit thread_local Thread* self __attribute__((tls_model("initial-exec"))) = nullptr;
constinit thread_local bool asks_for_attributes __attribute__((tls_model("initial-exec"))) = false;
stack::Tree tree;

namespace {

Header* header = nullptr;
char* buffers = nullptr;
std::atomic<Thread*> threads{nullptr};
std::atomic<std::uint32_t> epoch{1};  // one more with each new arena
pthread_key_t thread_key;
std::atomic<bool> is_registered{false};
char arena_path[PATH_MAX];

void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* limit = nullptr) {
    syscall(SYS_futex, &word, operation, value, limit, nullptr, 0);
}

BufferHead* buffer_at(std::uint32_t index) {
    return reinterpret_cast<BufferHead*>(buffers + std::size_t{index} * buffer_bytes);
}

// Seconds that a thread waits for the recorder before it takes it for dead and the program goes on
// unrecorded.
constexpr int patience_s = 20;

// Whether there is still somebody who empties buffers. Of a recorder that has started the program
// nothing is known: its number may be another container's.
bool has_recorder() {
    const auto recorder = static_cast<pid_t>(header->recorder.load(std::memory_order_relaxed));
    return !has_bound_hooks() || recorder == 0 || kill(recorder, 0) == 0 || errno != ESRCH;
}

// Nothing more is recorded. Of a process that was attached to, nothing is left behind either.
void give_up() {
    phase.store(Phase::off, std::memory_order_release);
    if (!has_bound_hooks()) return;
    unbind_hooks();
    if (header->recorder_gone.load(std::memory_order_acquire) != 0) return;
    // A recorder that was killed has not tidied up: its memory is given back.
    unlink(arena_path);
    rmdir(variable(directory_variable));
    madvise(static_cast<void*>(header), arena_bytes, MADV_REMOVE);
}

void enroll(Thread& thread) {
    thread.epoch = epoch.load(std::memory_order_relaxed);
    thread.serial = header->threads.fetch_add(1, std::memory_order_relaxed);
    thread.sequence = 0;
    thread.step = stack::ticks() >> time_shift;
    thread.low = thread.range = 0;
}

void name_thread(Thread& thread);

// A free buffer for this thread; looks from where it found the last one. False when there is none
// any more.
bool take_buffer(Thread& thread) {
    const bool is_new = thread.epoch != epoch.load(std::memory_order_relaxed);
    if (is_new) enroll(thread);
    for (int waited = 0; waited < patience_s * 100; ++waited) {
        if (phase.load(std::memory_order_relaxed) == Phase::off) return false;
        if (header->recorder_gone.load(std::memory_order_acquire) != 0) break;
        const std::uint32_t seen = header->freed.load(std::memory_order_acquire);
        // From the low end, so that few buffers stay warm while the recorder keeps up.
        for (std::uint32_t index = 0; index < buffer_count; ++index) {
            auto expected = static_cast<std::uint32_t>(BufferState::free);
            if (header->state[index].load(std::memory_order_relaxed) != expected ||
                !header->state[index].compare_exchange_strong(
                    expected, static_cast<std::uint32_t>(BufferState::filling),
                    std::memory_order_acq_rel))
                continue;
            BufferHead* head = buffer_at(index);
            head->used.store(0, std::memory_order_relaxed);
            head->thread = thread.serial;
            head->sequence = thread.sequence++;
            thread.buffer = index;
            thread.head = head;
            head->step = thread.step;
            thread.words.start(reinterpret_cast<std::uint64_t*>(head + 1),
                               buffer_room / sizeof(std::uint64_t));
            if (is_new) {
                name_thread(thread);
                note_modules(thread);
            }
            return true;
        }
        if (!has_recorder()) break;
        const timespec limit{0, 10'000'000};
        futex(header->freed, FUTEX_WAIT, seen, &limit);
    }
    give_up();
    return false;
}

void hand_over(Thread& thread) {
    if (thread.head == nullptr) return;
    header->state[thread.buffer].store(static_cast<std::uint32_t>(BufferState::full),
                                       std::memory_order_release);
    thread.head = nullptr;
    thread.words.stop();
}

// How much of its own stack the thread has in memory, at its end.
void record_residency(Thread& thread) {
    constexpr std::uint64_t most_pages = 64;
    const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    const stack::Bounds& bounds = thread.unwinder->bounds();
    unsigned char present[most_pages];
    std::uint64_t resident = 0, pages = most_pages;
    for (std::uint64_t end = bounds.high & ~(page - 1); end > bounds.low && pages > 0;) {
        pages = std::min(pages, (end - bounds.low) / page);
        if (mincore(reinterpret_cast<void*>(end - pages * page), pages * page, present) != 0) {
            pages /= 2;  // the main thread's is mapped as far as it has grown
            continue;
        }
        for (std::uint64_t k = 0; k < pages; ++k) resident += (present[k] & 1) * page;
        end -= pages * page;
    }
    if (thread.words.at == nullptr || (thread.words.at >= thread.words.end && !turn_over(thread)))
        return;
    thread.words.put(Kind::stack, stack::no_stack, 0, 0, resident);
    publish(thread);
}

// What stands for a thread that has said goodbye: always busy, so that nothing more is recorded of
// it.
Thread departed;

// Other destructors of this thread still free what they hold: put off to the last round that there
// is.
void thread_ends(void* state) {
    auto* thread = static_cast<Thread*>(state);
    if (++thread->rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
        pthread_setspecific(thread_key, thread);
        return;
    }
    thread->busy = 1;
    record_residency(*thread);
    hand_over(*thread);
    self = &departed;
    thread->ended.store(true, std::memory_order_release);
}

stack::Bounds stack_bounds() {
    if (asks_for_attributes) {
        // As far as is mapped; a thread's own data lie above its stack.
        const auto self_at = static_cast<std::uint64_t>(pthread_self()),
                   here = reinterpret_cast<std::uint64_t>(__builtin_frame_address(0));
        const stack::Bounds mapping = stack::mapping_of(here);
        return {mapping.low, self_at > here && self_at < mapping.high ? self_at : mapping.high};
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

// Not by mmap(), which is hooked.
void* map(std::size_t bytes, int flags = MAP_PRIVATE | MAP_ANONYMOUS, int fd = -1) {
    const long at =
        syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, fd, 0);
    return at == -1 ? nullptr : reinterpret_cast<void*>(at);
}

// A state that an ended thread has left, or a new one.
Thread* take_state() {
    for (Thread* t = threads.load(std::memory_order_acquire); t != nullptr; t = t->next) {
        bool ended = true;
        if (t->ended.compare_exchange_strong(ended, false, std::memory_order_acq_rel)) return t;
    }
    void* at = map(sizeof(Thread));
    if (at == nullptr) return nullptr;
    auto* thread = new (at) Thread;
    thread->unwinder = static_cast<stack::Unwinder*>(map(sizeof(stack::Unwinder)));
    if (thread->unwinder == nullptr) return nullptr;
    thread->next = threads.load(std::memory_order_relaxed);
    while (!threads.compare_exchange_weak(thread->next, thread, std::memory_order_acq_rel)) {
    }
    return thread;
}

void name_thread(Thread& thread) {
    char name[64] = {};
    const int n = __builtin_snprintf(name, 32, "%ld ", syscall(SYS_gettid));
    prctl(PR_GET_NAME, name + n);
    record_text(thread, Kind::thread, name, strlen(name));
}

std::uint64_t real_time_ns() {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
           static_cast<std::uint64_t>(now.tv_nsec);
}

void read_program(char* into, std::size_t bytes) {
    const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, into, bytes - 1) : 0;
    if (fd >= 0) close(fd);
    into[n > 0 ? n : 0] = 0;
}

// "directory/PID.N.arena", complete before it appears under that name.
bool create_arena(const char* folder) {
    char part[PATH_MAX];
    const auto pid = static_cast<unsigned>(getpid());
    const std::uint64_t stamp = stack::ticks();
    const auto write_name = [&](char* into, const char* suffix) {
        // snprintf is async-signal-unsafe in name only: it allocates nothing for these conversions.
        return __builtin_snprintf(into, PATH_MAX, "%s/%u.%llx%s", folder, pid,
                                  static_cast<unsigned long long>(stamp), suffix) < PATH_MAX;
    };
    if (!write_name(part, ".part") || !write_name(arena_path, ".arena")) return false;
    const int fd = open(part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return false;
    void* at = ftruncate(fd, static_cast<off_t>(arena_bytes)) == 0
                   ? map(arena_bytes, MAP_SHARED, fd)
                   : nullptr;
    close(fd);
    if (at == nullptr) {
        unlink(part);
        return false;
    }
    header = static_cast<Header*>(at);
    buffers = static_cast<char*>(at) + header_bytes;
    header->pid = pid;
    header->parent = static_cast<std::uint32_t>(getppid());
    header->start_ticks = stack::ticks();
    header->start_ns = real_time_ns();
    read_program(header->program, sizeof header->program);
    strncpy(header->rank, own_rank(), sizeof header->rank - 1);
    header->magic = arena_magic;
    tree.release();
    if (!tree.reserve(node_count,
                      reinterpret_cast<stack::Node*>(static_cast<char*>(at) + nodes_offset)))
        return false;
    return rename(part, arena_path) == 0;
}

// The arena is of no more use: threads take part in the next one when they have something to
// record.
void let_go() {
    if (header != nullptr) syscall(SYS_munmap, header, arena_bytes);
    header = nullptr;
    epoch.fetch_add(1, std::memory_order_relaxed);
    stack::generation.fetch_add(1, std::memory_order_relaxed);
    forget_modules();
    restart_python();
    for (Thread* t = threads.load(std::memory_order_relaxed); t != nullptr; t = t->next) {
        t->head = nullptr;
        t->words.stop();
    }
}

// The child of a fork is a process of its own: its parent's arena is let go, its threads are gone.
void in_child() {
    forget_modules();
    if (phase.load(std::memory_order_relaxed) != Phase::active) return;
    phase.store(Phase::starting, std::memory_order_relaxed);
    let_go();
    self = nullptr;
    pthread_setspecific(thread_key, nullptr);
    for (Thread* t = threads.load(std::memory_order_relaxed); t != nullptr; t = t->next)
        t->ended.store(true, std::memory_order_relaxed);
    phase.store(create_arena(variable(directory_variable)) ? Phase::active : Phase::off,
                std::memory_order_release);
}

// What the C library is to tell: once, and where it may allocate.
void register_here() {
    if (is_registered.exchange(true)) return;
    pthread_key_create(&thread_key, thread_ends);
    pthread_atfork(nullptr, nullptr, in_child);
}

}  // namespace

void record_text(Thread& thread, Kind kind, const char* text, std::size_t bytes) {
    while (!thread.words.put_text(kind, text, bytes)) {
        hand_over(thread);
        if (!take_buffer(thread)) return;
    }
    publish(thread);
}

void* map_zeroed(std::size_t bytes) { return map(bytes); }

bool start() {
    auto expected = Phase::fresh;
    if (environ == nullptr || !phase.compare_exchange_strong(expected, Phase::starting))
        return false;
    const char* folder = variable(directory_variable);
    if (*folder == 0 || !is_wanted_rank() || !read_filter() || !create_arena(folder)) {
        phase.store(Phase::off, std::memory_order_release);
        return false;
    }
    register_here();
    phase.store(Phase::active, std::memory_order_release);
    return true;
}

bool start_again() {
    phase.store(Phase::starting, std::memory_order_release);
    let_go();
    for (Thread* t = threads.load(std::memory_order_relaxed); t != nullptr; t = t->next)
        t->busy = 0;  // one that found no buffer has stayed so
    const bool is_ready = read_filter() && create_arena(variable(directory_variable));
    phase.store(is_ready ? Phase::active : Phase::off, std::memory_order_release);
    return is_ready;
}

void stop() {
    if (phase.load(std::memory_order_relaxed) != Phase::active) return;
    phase.store(Phase::off, std::memory_order_release);
    header->nodes_used.store(tree.size(), std::memory_order_release);
    header->ended.store(static_cast<std::uint32_t>(Ending::left), std::memory_order_release);
}

void ends_by_itself() {
    if (phase.load(std::memory_order_acquire) != Phase::active ||
        header->pid != static_cast<std::uint32_t>(getpid()))
        return;
    header->nodes_used.store(tree.size(), std::memory_order_release);
    header->ended.store(static_cast<std::uint32_t>(Ending::by_itself), std::memory_order_release);
}

Thread* attach() {
    const ErrnoKept errno_kept;
    const Phase now = phase.load(std::memory_order_acquire);
    if (now == Phase::fresh) {
        if (!start()) return nullptr;
    } else if (now != Phase::active) {
        return nullptr;
    }
    if (self != nullptr) return self;  // made by start() itself
    Thread* thread = take_state();
    if (thread == nullptr) return nullptr;
    thread->busy = 1;
    self = thread;  // before anything that may allocate
    thread->epoch = 0;
    thread->gap = first_gap;
    thread->rounds = 0;
    thread->pthread = static_cast<std::uint64_t>(pthread_self());
    thread->random = stack::ticks() | 1;
    thread->until_sample = next_gap(thread->random);
    thread->unwinder->set_bounds(stack_bounds());
    pthread_setspecific(thread_key, thread);
    if (!take_buffer(*thread)) return nullptr;
    thread->busy = 0;
    return thread;
}

bool turn_over(Thread& thread) {
    const ErrnoKept errno_kept;
    header->nodes_used.store(tree.size(),
                             std::memory_order_release);  // before the events that speak of them
    hand_over(thread);
    if (phase.load(std::memory_order_relaxed) == Phase::active && take_buffer(thread)) {
        note_modules(thread);
        return true;
    }
    if (header != nullptr) header->lost.fetch_add(1, std::memory_order_relaxed);
    return false;
}

void record_depth(Thread& thread, std::uint64_t sp, std::uint32_t stack) {
    const stack::Bounds& bounds = thread.unwinder->bounds();
    if (sp < bounds.low || sp >= bounds.high) return;  // a stack of the program's own making
    const std::uint64_t depth = bounds.high - sp, margin = depth / 8 + 512;
    thread.low = sp - margin;
    thread.range = 2 * margin;
    thread.words.put(Kind::stack, stack, 0, 0, depth);
}

void before_unloading() {
    const ErrnoKept errno_kept;
    if (Thread* thread = recording()) {
        thread->busy = 1;
        note_modules(*thread);
        thread->busy = 0;
    }
    leave_python();
}

void after_unloading() {
    stack::generation.fetch_add(1, std::memory_order_release);
    return_to_python();
}

namespace {

// At the end of the process: what the last thread has, and the bell.
__attribute__((destructor)) void finish() {
    if (phase.load(std::memory_order_acquire) != Phase::active) return;
    if (Thread* thread = recording()) {
        thread->busy = 1;
        record_residency(*thread);
        note_modules(*thread);
        thread->busy = 0;
    }
    ends_by_itself();
}

__attribute__((constructor(101))) void begin() {
    register_here();
    start();
}

}  // namespace

}  // namespace assay::heap
