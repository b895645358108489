// Start-up, threads and the report of the exact modes' runtime.
#include "profile/numa/exact/runtime.hpp"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <iterator>

#include "profile/numa/hooks/apply.hpp"
#include "profile/numa/hooks/capture.hpp"
#include "profile/numa/hooks/ring.hpp"
#include "profile/numa/hooks/tracker.hpp"

namespace assay::numa {

bool is_counting = false;
bool reserve_objects();

namespace {

constexpr std::uint64_t first_object_stack = 1 << 26;
// shared_counts: of threads without memory for counters of their own.
ThreadCounts *threads = nullptr, *shared_counts = nullptr;
std::uint32_t thread_count = 0;
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
bool has_static_sites = false;

struct Module {
    const StaticSite* sites;
    std::uint32_t base, count;
};
constexpr std::uint32_t max_modules = 4096;
Module modules[max_modules];
std::uint32_t module_count = 0, site_count = 0;
bool lacks_sites = false;

// A hash table of the stacks that the recording already holds: address and number.
struct WrittenStack {
    std::uint64_t pc, number;
};
constexpr std::uint64_t max_written_stacks = 1 << 18;
WrittenStack* written_stacks = nullptr;
std::uint64_t written_stack_count = 0;

int node_or_unknown(unsigned node) { return node == unknown_node ? -1 : static_cast<int>(node); }

void write_process(Lines& lines) {
    char command[4096];
    const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    const ssize_t size = fd >= 0 ? read(fd, command, sizeof command) : 0;
    if (fd >= 0) close(fd);
    lines.write("process", recording_version, Text(has_static_sites ? "llvm" : "gcc"), getpid(),
                getppid(), 4096, is_emulated() ? static_cast<int>(node_count()) : 0,
                Text(command, size > 0 ? static_cast<std::size_t>(size) : 0), Text(mpi_rank()));
}

int write_module(dl_phdr_info* object, size_t, void* user_data) {
    char program_path[PATH_MAX];
    Text name(object->dlpi_name);
    if (name.size == 0) {
        const ssize_t n = readlink("/proc/self/exe", program_path, sizeof program_path);
        if (n <= 0) return 0;
        name = Text(program_path, static_cast<std::size_t>(n));
    }
    if (name.data[0] != '/') return 0;
    for (int k = 0; k < object->dlpi_phnum; ++k) {
        const ElfW(Phdr) & segment = object->dlpi_phdr[k];
        if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
        const std::uint64_t begin = object->dlpi_addr + segment.p_vaddr;
        static_cast<Lines*>(user_data)->write("module", object->dlpi_addr, begin,
                                              begin + segment.p_memsz, name);
    }
    return 0;
}

void write_value(Lines& lines, const ThreadCounts& thread, std::uint32_t value, unsigned cpu_node,
                 std::uint64_t count) {
    const ClassInfo info = class_info(value >> node_bits);
    lines.write("part", info.object, info.part, thread.number, node_or_unknown(cpu_node),
                node_or_unknown(value & unknown_node), count);
}

void write_entry(Lines& lines, const ThreadCounts& thread, const Entry& entry) {
    if (entry.reads + entry.writes == 0) return;
    const std::uint64_t stack = stack_of(entry.pc, lines);
    lines.write("access", class_info(entry.value >> node_bits).object, stack, thread.number,
                node_or_unknown(entry.thread_node), node_or_unknown(entry.value & unknown_node),
                entry.reads, entry.writes);
    write_value(lines, thread, entry.value, entry.thread_node, entry.reads + entry.writes);
}

void write_entries(Lines& lines, const ThreadCounts& thread) {
    for (std::uint32_t k = 0; thread.table != nullptr && k < 1u << table_bits; ++k)
        write_entry(lines, thread, thread.table[k]);
    Slots slots(thread);
    for (Entry entry; slots.next(entry);) write_entry(lines, thread, entry);
}

void write_sites(Lines& lines, const ThreadCounts& thread) {
    if (!has_static_sites) return;
    for (std::uint32_t k = 0; k < module_count; ++k)
        for (std::uint32_t site = 0; site < modules[k].count; ++site) {
            const std::uint64_t number = modules[k].base + site;
            const bool writes = modules[k].sites[site].is_write != 0;
            for (unsigned cell = 0; cell < site_counters; ++cell)
                if (const std::uint64_t n = thread.sites[number * site_counters + cell]; n > 0)
                    lines.write("access", -1, first_site_stack + number, thread.number,
                                node_or_unknown(cell % 8), node_or_unknown(cell / 8),
                                writes ? 0 : n, writes ? n : 0);
        }
    const std::uint64_t end = (std::uint64_t{class_count()} + 1) << node_bits;
    for (std::uint64_t value = 1 << node_bits; value < end; ++value)
        for (unsigned cpu_node = 0; cpu_node < 8; ++cpu_node)
            if (const std::uint64_t n = thread.values[value * 8 + cpu_node]; n > 0)
                write_value(lines, thread, static_cast<std::uint32_t>(value), cpu_node, n);
}

void write_static_sites(Lines& lines) {
    for (std::uint32_t k = 0; k < module_count; ++k)
        for (std::uint32_t site = 0; site < modules[k].count; ++site) {
            const StaticSite& entry = modules[k].sites[site];
            lines.write("site", first_site_stack + modules[k].base + site, Text(entry.function),
                        Text(entry.file), entry.line);
        }
}

int open_recording() {
    const char* folder = getenv("ASSAY_NUMA_DIRECTORY");
    if (folder == nullptr) return -1;
    char path[PATH_MAX];
    for (int number = 0; number < 1000; ++number) {
        snprintf(path, sizeof path, "%s/%d.exact%d.numa", folder, getpid(), number);
        const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

void clear_counts_after_fork() {
    // The parent reports the accesses before the fork.
    for (const ThreadCounts* thread = threads; thread != nullptr; thread = thread->next) {
        if (thread->table != nullptr)
            madvise(thread->table, sizeof(Entry) << table_bits, MADV_DONTNEED);
        madvise(const_cast<std::uint64_t*>(thread->values),
                sizeof thread->values + sizeof thread->sites, MADV_DONTNEED);
        madvise(const_cast<std::byte*>(thread->slots), sizeof thread->slots, MADV_DONTNEED);
    }
}

ThreadCounts* map_counts() {
    auto* counts = static_cast<ThreadCounts*>(map_zeroed(sizeof(ThreadCounts)));
    if (counts == nullptr) return nullptr;
    counts->processor = processor_number();
    memcpy(counts->nodes, processor_nodes, sizeof counts->nodes);
    for (unsigned k = 0; k < max_processors; ++k)
        counts->node_keys[k] = (processor_nodes[k] + 1u) << node_key_shift;
    return counts;
}

// Accesses of threads without counters of their own. Their increments race, so some are missing.
std::uint64_t count_shared_accesses() {
    std::uint64_t total = shared_counts->overflow;
    for (const std::uint64_t count : shared_counts->values) total += count;
    Slots slots(*shared_counts);
    for (Entry entry; slots.next(entry);) total += entry.reads + entry.writes;
    return total;
}

// add_thread() also calls this, for code that runs before the constructors of this library.
__attribute__((constructor(101))) void start() {
    if (is_counting) return;
    ++in_hook;
    read_nodes();
    void* const shadow_start = reinterpret_cast<void*>(shadow_address);
    const void* mapped =
        mmap(shadow_start, page_count * 4, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    written_stacks =
        static_cast<WrittenStack*>(map_zeroed(max_written_stacks * sizeof(WrittenStack)));
    shared_counts = map_counts();
    is_counting = mapped == shadow_start && written_stacks != nullptr && shared_counts != nullptr &&
                  reserve_objects();
    if (!is_counting) {
        static const char message[] =
            "assay-numa: cannot reserve address space for the counters; fix: ulimit -v unlimited, "
            "vm.overcommit_memory=0\n";
        [[maybe_unused]] const ssize_t n = write(2, message, sizeof message - 1);
        _exit(2);  // code that was compiled for the counters cannot run without them
    }
    pthread_atfork(nullptr, nullptr, clear_counts_after_fork);
    if (const char* bytes = getenv(min_object_variable))
        min_object_bytes = static_cast<std::size_t>(strtoull(bytes, nullptr, 10));
    read_plan();
    --in_hook;
}

constexpr int ending_signals[] = {SIGTERM, SIGHUP, SIGINT};
volatile sig_atomic_t received_signal = 0;
void on_ending_signal(int number) { received_signal = number; }

// Holds back signals that would end the program while it writes its report. A launcher sends them
// to all ranks as soon as one has ended with an error, and the report would be cut off. Signals
// that the program handles or ignores are left alone. They cannot be blocked instead, since the
// kernel would then deliver them to another thread.
class HoldSignals {
public:
    HoldSignals() {
        for (std::size_t k = 0; k < std::size(ending_signals); ++k) {
            struct sigaction holding{};
            holding.sa_handler = on_ending_signal;
            holding.sa_flags = SA_RESTART;
            is_held_[k] = sigaction(ending_signals[k], nullptr, &before_[k]) == 0 &&
                          before_[k].sa_handler == SIG_DFL &&
                          sigaction(ending_signals[k], &holding, nullptr) == 0;
        }
    }
    ~HoldSignals() {
        for (std::size_t k = 0; k < std::size(ending_signals); ++k)
            if (is_held_[k]) sigaction(ending_signals[k], &before_[k], nullptr);
        if (received_signal != 0) kill(getpid(), received_signal);
    }
    HoldSignals(const HoldSignals&) = delete;
    HoldSignals& operator=(const HoldSignals&) = delete;

private:
    struct sigaction before_[std::size(ending_signals)];
    bool is_held_[std::size(ending_signals)];
};

__attribute__((destructor)) void report() {
    if (!is_counting || threads == nullptr) return;
    ++in_hook;
    const HoldSignals hold;
    const int fd = open_recording();
    if (fd < 0) return;
    static Lines lines(fd);
    write_process(lines);
    write_nodes(lines);
    dl_iterate_phdr(write_module, &lines);
    for (const ThreadCounts* t = threads; t != nullptr; t = t->next)
        lines.write("thread", t->number, t->tid, Text(""));
    write_objects(lines, first_object_stack);
    write_static_sites(lines);
    std::uint64_t lost = count_shared_accesses();
    for (const ThreadCounts* thread = threads; thread != nullptr; thread = thread->next) {
        write_entries(lines, *thread);
        write_sites(lines, *thread);
        lost += thread->overflow;
    }
    write_touches(lines);
    if (lacks_sites)
        lines.write("note", Text("the program has more lines with accesses than can be told apart: "
                                 "some accesses count at another line"));
    lines.write("end", 0, lost, 0);
    lines.flush();
    close(fd);
}

}  // namespace

ThreadCounts* add_thread() {
    start();
    ++in_hook;
    ThreadCounts* counts = map_counts();
    if (counts != nullptr) {
        counts->table = static_cast<Entry*>(map_zeroed(sizeof(Entry) << table_bits));
        counts->tid = static_cast<int>(syscall(SYS_gettid));
        pthread_mutex_lock(&mutex);
        counts->number = thread_count++;
        counts->next = threads;
        threads = counts;
        pthread_mutex_unlock(&mutex);
    }
    --in_hook;
    return counts != nullptr ? counts : shared_counts;
}

std::uint64_t stack_of(std::uint64_t pc, Lines& lines) {
    if (pc >= first_site_stack && pc < first_site_stack + max_sites) return pc;  // a static site
    const std::uint64_t hash = pc * 0x9e3779b97f4a7c15ull >> 20;
    for (std::uint64_t k = 0; k < max_written_stacks; ++k) {
        WrittenStack& entry = written_stacks[(hash + k) % max_written_stacks];
        if (entry.pc == pc) return entry.number;
        if (entry.pc != 0) continue;
        entry = {pc, ++written_stack_count};
        lines.write("stack", entry.number, List<std::uint64_t>{&pc, 1});
        return entry.number;
    }
    return 0;
}

}  // namespace assay::numa

using namespace assay::numa;

// Called by each module that the LLVM pass has compiled, before its code runs. Returns the number
// of its first site.
extern "C" __attribute__((visibility("default"))) std::uint32_t __assay_numa_module(
    const StaticSite* sites, std::uint32_t count) {
    pthread_mutex_lock(&mutex);
    has_static_sites = true;
    std::uint32_t base = 0;  // if the table is full, its accesses count for the first site
    if (module_count < max_modules && site_count + count <= max_sites) {
        base = site_count;
        modules[module_count++] = {sites, base, count};
        site_count += count;
    } else {
        lacks_sites = true;
    }
    pthread_mutex_unlock(&mutex);
    return base;
}
