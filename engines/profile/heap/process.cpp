#include "profile/heap/process.hpp"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <new>

namespace assay::heap {

std::atomic<Phase> phase{Phase::fresh};
constinit thread_local Thread* self __attribute__((tls_model("initial-exec"))) = nullptr;
stack::Tree tree;

namespace {

// The program's errno, over what is done here in its name.
class ErrnoKept {
public:
    ErrnoKept() : value_(errno) {}
    ~ErrnoKept() { errno = value_; }

private:
    int value_;
};

Header* header = nullptr;
char* buffers = nullptr;
std::atomic<Thread*> threads{nullptr};
std::atomic<unsigned long long> modules_seen{0};  // objects loaded and unloaded, as the loader counts them
std::atomic<std::uint32_t> epoch{1};  // of the process: one more in each child of a fork
pthread_key_t thread_key;

void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* limit = nullptr) {
    syscall(SYS_futex, &word, operation, value, limit, nullptr, 0);
}

BufferHead* buffer_at(std::uint32_t index) {
    return reinterpret_cast<BufferHead*>(buffers + std::size_t{index} * buffer_bytes);
}

// Seconds that a thread waits for the recorder before it takes it for dead and the program goes on unrecorded.
constexpr int patience_s = 20;
constexpr std::size_t text_room = 16 << 10;     // of one event's text, a quarter of a buffer
constexpr std::size_t modules_room = 1 << 20;  // of all loaded objects

// A free buffer for this thread; looks from where it found the last one. False when there is none any more.
bool take_buffer(Thread& thread) {
    for (int waited = 0; waited < patience_s * 100; ++waited) {
        const std::uint32_t seen = header->freed.load(std::memory_order_acquire);
        // From the low end, so that few buffers stay warm while the recorder keeps up.
        for (std::uint32_t index = 0; index < buffer_count; ++index) {
            auto expected = static_cast<std::uint32_t>(BufferState::free);
            if (header->state[index].load(std::memory_order_relaxed) != expected ||
                !header->state[index].compare_exchange_strong(expected, static_cast<std::uint32_t>(BufferState::filling),
                                                              std::memory_order_acq_rel))
                continue;
            BufferHead* head = buffer_at(index);
            head->used.store(0, std::memory_order_relaxed);
            head->thread = thread.serial;
            head->sequence = thread.sequence++;
            thread.buffer = index;
            thread.head = head;
            head->step = thread.step;
            thread.words.start(reinterpret_cast<std::uint64_t*>(head + 1), buffer_room / sizeof(std::uint64_t));
            return true;
        }
        if (header->recorder_gone.load(std::memory_order_acquire) != 0) break;
        const timespec limit{0, 10'000'000};
        futex(header->freed, FUTEX_WAIT, seen, &limit);
    }
    phase.store(Phase::off, std::memory_order_release);
    return false;
}

void hand_over(Thread& thread) {
    if (thread.head == nullptr) return;
    header->state[thread.buffer].store(static_cast<std::uint32_t>(BufferState::full), std::memory_order_release);
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
    if (thread.words.at == nullptr || (thread.words.at >= thread.words.end && !turn_over(thread))) return;
    thread.words.put(Kind::stack, stack::no_stack, 0, 0, resident);
    publish(thread);
}

// What stands for a thread that has said goodbye: always busy, so that nothing more is recorded of it.
Thread departed;

// Other destructors of this thread still free what they hold: put off to the last round that there is.
void thread_ends(void* state) {
    auto* thread = static_cast<Thread*>(state);
    if (thread->epoch != epoch.load(std::memory_order_relaxed)) return;
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
    const long at = syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, fd, 0);
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
    while (!threads.compare_exchange_weak(thread->next, thread, std::memory_order_acq_rel)) {}
    return thread;
}

void name_thread(Thread& thread) {
    char name[64] = {};
    const int n = __builtin_snprintf(name, 32, "%ld ", syscall(SYS_gettid));
    prctl(PR_GET_NAME, name + n);
    record_text(thread, Kind::thread, name, strlen(name));
}

// As the environment gives it; empty for none. getenv is not called: it may not be ready yet, and programs may have an
// own one.
const char* variable(const char* name) {
    const std::size_t n = strlen(name);
    if (environ == nullptr) return "";
    for (char** entry = environ; *entry != nullptr; ++entry)
        if (strncmp(*entry, name, n) == 0 && (*entry)[n] == '=') return *entry + n + 1;
    return "";
}

const char* directory() { return variable(directory_variable); }

std::uint64_t number_in(const char* text) {
    std::uint64_t value = 0;
    for (; *text >= '0' && *text <= '9'; ++text) value = 10 * value + static_cast<std::uint64_t>(*text - '0');
    return value;
}

const char* own_rank() {
    for (const char* name : rank_variables)
        if (const char* rank = variable(name); *rank != 0) return rank;
    return "";
}

// Whether this process is none of an MPI program's, or one of those that are wanted.
bool is_wanted_rank() {
    const char *ranks = variable(ranks_variable), *own = own_rank();
    if (*ranks == 0) return true;
    if (*own == 0) return false;
    for (const char* at = ranks; *at != 0;) {
        if (number_in(at) == number_in(own)) return true;
        while (*at != 0 && *at++ != ',') {}
    }
    return false;
}

bool read_filter() {
    filter.at_least = number_in(variable(at_least_variable));
    filter.sample = number_in(variable(sample_variable));
    filter.is_on = (filter.at_least | filter.sample) != 0;
    return filter.sample == 0 || taken.reserve();
}

std::uint64_t real_time_ns() {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

void read_program(char* into, std::size_t bytes) {
    const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, into, bytes - 1) : 0;
    if (fd >= 0) close(fd);
    into[n > 0 ? n : 0] = 0;
}

// "directory/PID.N.arena", complete before it appears under that name.
bool create_arena(const char* folder) {
    char part[PATH_MAX], whole[PATH_MAX];
    const auto pid = static_cast<unsigned>(getpid());
    const std::uint64_t stamp = stack::ticks();
    const auto write_name = [&](char* into, const char* suffix) {
        // snprintf is async-signal-unsafe in name only: it allocates nothing for these conversions.
        return __builtin_snprintf(into, PATH_MAX, "%s/%u.%llx%s", folder, pid, static_cast<unsigned long long>(stamp), suffix) < PATH_MAX;
    };
    if (!write_name(part, ".part") || !write_name(whole, ".arena")) return false;
    const int fd = open(part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return false;
    void* at = ftruncate(fd, static_cast<off_t>(arena_bytes)) == 0 ? map(arena_bytes, MAP_SHARED, fd) : nullptr;
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
    if (!tree.reserve(node_count, reinterpret_cast<stack::Node*>(static_cast<char*>(at) + nodes_offset))) return false;
    return rename(part, whole) == 0;
}

// The child of a fork is a process of its own: its parent's arena is let go, its threads are gone.
void in_child() {
    modules_seen.store(0, std::memory_order_relaxed);
    if (phase.load(std::memory_order_relaxed) != Phase::active) return;
    phase.store(Phase::starting, std::memory_order_relaxed);
    syscall(SYS_munmap, header, arena_bytes);
    header = nullptr;
    self = nullptr;
    epoch.fetch_add(1, std::memory_order_relaxed);
    stack::generation.fetch_add(1, std::memory_order_relaxed);
    restart_python();
    for (Thread* t = threads.load(std::memory_order_relaxed); t != nullptr; t = t->next) {
        t->head = nullptr;
        t->words.stop();
        t->ended.store(true, std::memory_order_relaxed);
    }
    phase.store(create_arena(directory()) ? Phase::active : Phase::off, std::memory_order_release);
}

struct ModuleText {
    char* at;
    char* end;

    void add(const char* text) {
        while (*text != 0 && at < end) *at++ = *text++;
    }
    void add_hex(std::uint64_t value) {
        char digits[17];
        int n = 0;
        do digits[n++] = "0123456789abcdef"[value & 15];
        while ((value >>= 4) != 0);
        while (n > 0 && at < end) *at++ = digits[--n];
    }
};

// One line an object: "load-bias begin end build-id path".
int write_module(dl_phdr_info* info, std::size_t, void* into) {
    if (*variable(no_python_variable) == 0) look_for_python(*info);
    auto& text = *static_cast<ModuleText*>(into);
    std::uint64_t begin = ~std::uint64_t{0}, end = 0;
    const char* id = nullptr;
    std::size_t id_bytes = 0;
    for (int k = 0; k < info->dlpi_phnum; ++k) {
        const ElfW(Phdr)& segment = info->dlpi_phdr[k];
        const std::uint64_t at = info->dlpi_addr + segment.p_vaddr;
        if (segment.p_type == PT_LOAD) {
            if (at < begin) begin = at;
            if (at + segment.p_memsz > end) end = at + segment.p_memsz;
        }
        if (segment.p_type != PT_NOTE || id != nullptr) continue;
        for (std::uint64_t note = at; note + sizeof(ElfW(Nhdr)) < at + segment.p_memsz;) {
            const auto* head = reinterpret_cast<const ElfW(Nhdr)*>(note);
            const std::uint64_t name = note + sizeof *head, descriptor = name + ((head->n_namesz + 3) & ~3u);
            if (head->n_type == NT_GNU_BUILD_ID && head->n_namesz == 4 &&
                memcmp(reinterpret_cast<const void*>(name), "GNU", 4) == 0) {
                id = reinterpret_cast<const char*>(descriptor);
                id_bytes = head->n_descsz;
                break;
            }
            note = descriptor + ((head->n_descsz + 3) & ~3u);
        }
    }
    text.add_hex(info->dlpi_addr);
    text.add(" ");
    text.add_hex(begin);
    text.add(" ");
    text.add_hex(end);
    text.add(" ");
    if (id == nullptr) text.add("-");
    for (std::size_t k = 0; k < id_bytes; ++k) {
        const char two[3] = {"0123456789abcdef"[static_cast<unsigned char>(id[k]) >> 4],
                             "0123456789abcdef"[id[k] & 15], 0};
        text.add(two);
    }
    text.add(" ");
    if (info->dlpi_name[0] != 0) {
        text.add(info->dlpi_name);
    } else {
        static char self_path[PATH_MAX];
        const ssize_t n = readlink("/proc/self/exe", self_path, sizeof self_path - 1);
        self_path[n > 0 ? n : 0] = 0;
        text.add(self_path);
    }
    text.add("\n");
    return 0;
}

}  // namespace

void record_text(Thread& thread, Kind kind, const char* text, std::size_t bytes) {
    if (!thread.words.put_text(kind, text, bytes)) {
        hand_over(thread);
        if (!take_buffer(thread)) return;
        thread.words.put_text(kind, text, bytes);
    }
    publish(thread);
}

void* map_zeroed(std::size_t bytes) { return map(bytes); }

bool start() {
    auto expected = Phase::fresh;
    if (environ == nullptr || !phase.compare_exchange_strong(expected, Phase::starting)) return false;
    const char* folder = directory();
    if (*folder == 0 || !is_wanted_rank() || !read_filter() || !create_arena(folder)) {
        phase.store(Phase::off, std::memory_order_release);
        return false;
    }
    pthread_key_create(&thread_key, thread_ends);
    pthread_atfork(nullptr, nullptr, in_child);
    phase.store(Phase::active, std::memory_order_release);
    return true;
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
    thread->epoch = epoch.load(std::memory_order_relaxed);
    thread->serial = header->threads.fetch_add(1, std::memory_order_relaxed);
    thread->sequence = 0;
    thread->step = stack::ticks() >> time_shift;
    thread->rounds = 0;
    thread->low = thread->range = 0;
    thread->pthread = static_cast<std::uint64_t>(pthread_self());
    thread->random = stack::ticks() | 1;
    thread->until_sample = next_gap(thread->random);
    thread->unwinder->set_bounds(stack_bounds());
    if (!take_buffer(*thread)) return nullptr;
    pthread_setspecific(thread_key, thread);
    name_thread(*thread);
    note_modules(*thread);
    thread->busy = 0;
    return thread;
}

bool turn_over(Thread& thread) {
    const ErrnoKept errno_kept;
    header->nodes_used.store(tree.size(), std::memory_order_release);  // before the events that speak of them
    hand_over(thread);
    if (phase.load(std::memory_order_relaxed) == Phase::active && take_buffer(thread)) {
        note_modules(thread);
        return true;
    }
    if (header != nullptr) header->lost.fetch_add(1, std::memory_order_relaxed);
    return false;
}

namespace {

int count_changes(dl_phdr_info* info, std::size_t, void* into) {
    *static_cast<unsigned long long*>(into) = info->dlpi_adds + info->dlpi_subs;
    return 1;  // the first object tells it
}

}  // namespace

// dlopen itself is not hooked: it looks at who called it to know where to search. New objects are noticed a buffer
// later at most, and before any is unloaded.
void note_modules(Thread& thread) {
    unsigned long long changes = 0;
    dl_iterate_phdr(count_changes, &changes);
    if (modules_seen.exchange(changes, std::memory_order_acq_rel) == changes) return;
    static char room[modules_room];
    static std::atomic_flag writing;
    if (writing.test_and_set(std::memory_order_acquire)) {  // another thread is at it, maybe a moment too early
        modules_seen.store(0, std::memory_order_relaxed);
        return;
    }
    ModuleText text{room, room + sizeof room};
    dl_iterate_phdr(write_module, &text);
    const std::size_t bytes = static_cast<std::size_t>(text.at - room);
    // Whole lines, a piece at a time: a buffer may be nearly full.
    for (std::size_t at = 0; at < bytes;) {
        std::size_t end = std::min(bytes, at + text_room);
        while (end < bytes && end > at && room[end - 1] != '\n') --end;
        record_text(thread, Kind::modules, room + at, end - at);
        at = end;
    }
    tell_of_python(thread);
    writing.clear(std::memory_order_release);
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
        thread->busy = 0;
    }
    header->nodes_used.store(tree.size(), std::memory_order_release);
    header->ended.store(1, std::memory_order_release);
}

__attribute__((constructor(101))) void begin() { start(); }

}  // namespace

}  // namespace assay::heap
