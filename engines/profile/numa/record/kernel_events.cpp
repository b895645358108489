#include "profile/numa/record/kernel_events.hpp"

#include <asm/perf_regs.h>
#include <fmt/format.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>

namespace assay::numa {
namespace {

constexpr std::size_t max_ring_pages = 2048, min_ring_pages = 16;
constexpr std::uint32_t stack_bytes = stack_words * 8;
// A wake-up costs the program more than its faults do: mostly the recorder looks by itself.
constexpr std::uint32_t wakeup_bytes = 256 << 10;

#if defined(__aarch64__)
constexpr std::uint64_t wanted_registers = (std::uint64_t{1} << PERF_REG_ARM64_X29) |
                                           (std::uint64_t{1} << PERF_REG_ARM64_SP) |
                                           (std::uint64_t{1} << PERF_REG_ARM64_PC);
#else
constexpr std::uint64_t wanted_registers = (std::uint64_t{1} << PERF_REG_X86_BP) |
                                           (std::uint64_t{1} << PERF_REG_X86_SP) |
                                           (std::uint64_t{1} << PERF_REG_X86_IP);
#endif

// The kernel's layouts (perf_event_open(2)).
struct FaultSample {
    std::uint64_t ip;
    std::uint32_t pid, tid;
    std::uint64_t time, address;
    std::uint32_t processor, unused;
    std::uint64_t has_registers;
};
struct Ids {  // the end of all other records: PERF_SAMPLE_TID, TIME, CPU
    std::uint32_t pid, tid;
    std::uint64_t time;
    std::uint32_t processor, unused;
};
struct Mapped {
    std::uint32_t pid, tid;
    std::uint64_t address, bytes, offset;
    std::uint32_t major, minor;
    std::uint64_t inode, generation;
    std::uint32_t protection, flags;
};
struct Forked {
    std::uint32_t pid, parent, tid, parent_tid;
    std::uint64_t time;
};

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

int open_event(pid_t process, int processor, bool with_kernel) {
    perf_event_attr wanted{};
    wanted.size = sizeof wanted;
    wanted.type = PERF_TYPE_SOFTWARE;
    wanted.config = PERF_COUNT_SW_PAGE_FAULTS;
    wanted.sample_period = 1;
    wanted.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR |
                         PERF_SAMPLE_CPU | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
    wanted.sample_regs_user = wanted_registers;
    wanted.sample_stack_user = stack_bytes;
    wanted.sample_id_all = 1;
    wanted.disabled = wanted.enable_on_exec = 1;
    wanted.inherit = 1;
    wanted.mmap = wanted.mmap2 = 1;
    wanted.comm = wanted.comm_exec = 1;
    wanted.task = 1;
    wanted.use_clockid = 1;
    wanted.clockid = CLOCK_MONOTONIC;
    wanted.exclude_hv = 1;
    wanted.exclude_kernel = with_kernel ? 0 : 1;
    wanted.watermark = 1;
    wanted.wakeup_watermark = wakeup_bytes;
    return static_cast<int>(
        syscall(SYS_perf_event_open, &wanted, process, processor, -1, PERF_FLAG_FD_CLOEXEC));
}

std::string refusal(int error) {
    std::ifstream file("/proc/sys/kernel/perf_event_paranoid");
    std::string level;
    file >> level;
    if (error == EACCES || error == EPERM)
        return fmt::format(
            "page faults cannot be watched: kernel.perf_event_paranoid is {}; fix: sysctl "
            "kernel.perf_event_paranoid=1",
            level.empty() ? "unknown" : level);
    return fmt::format("page faults cannot be watched: perf_event_open: {}", std::strerror(error));
}

// Reads a ring's bytes, across its end.
class Reader {
public:
    Reader(const char* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
    void read(std::uint64_t from, void* into, std::size_t size) const {
        const std::size_t begin = from % bytes_, first = std::min(size, bytes_ - begin);
        std::memcpy(into, data_ + begin, first);
        std::memcpy(static_cast<char*>(into) + first, data_, size - first);
    }

private:
    const char* data_;
    std::size_t bytes_;
};

KernelEvent read_fault(const Reader& reader, std::uint64_t from) {
    FaultSample sample;
    reader.read(from, &sample, sizeof sample);
    from += sizeof sample;
    KernelEvent event;
    event.ns = sample.time;
    event.pid = sample.pid;
    event.tid = sample.tid;
    event.processor = static_cast<int>(sample.processor);
    event.address = sample.address;
    event.ip = sample.ip;
    if (sample.has_registers == PERF_SAMPLE_REGS_ABI_NONE) return event;
    std::uint64_t registers[3];  // in the order of their numbers: BP, SP, IP
    reader.read(from, registers, sizeof registers);
    from += sizeof registers;
    event.bp = registers[0];
    event.sp = registers[1];
    event.ip = registers[2];
    std::uint64_t copied = 0, used = 0;
    reader.read(from, &copied, sizeof copied);
    if (copied == 0 || copied > stack_bytes) return event;
    reader.read(from + 8 + copied, &used, sizeof used);
    used = std::min(used, copied);
    event.used = static_cast<std::uint32_t>(used / 8);
    reader.read(from + 8, event.stack.data(), event.used * 8);
    return event;
}

KernelEvent read_mapping(const Reader& reader, std::uint64_t from, std::size_t size) {
    Mapped mapped;
    KernelEvent event;
    if (size < sizeof mapped + sizeof(Ids)) return event;
    reader.read(from, &mapped, sizeof mapped);
    event.kind = KernelEvent::Kind::map;
    event.pid = mapped.pid;
    event.tid = mapped.tid;
    event.address = mapped.address;
    event.bytes = mapped.bytes;
    event.offset = mapped.offset;
    event.executable = (mapped.protection & PROT_EXEC) != 0;
    event.name.resize(size - sizeof mapped - sizeof(Ids));
    reader.read(from + sizeof mapped, event.name.data(), event.name.size());
    event.name.resize(std::strlen(event.name.c_str()));
    return event;
}

}  // namespace

KernelEvents::~KernelEvents() {
    for (const Ring& ring : rings_) {
        munmap(ring.base, page_bytes() + ring.bytes);
        close(ring.fd);
    }
}

bool KernelEvents::open_ring(pid_t process, int processor, bool with_kernel) {
    const int fd = open_event(process, processor, with_kernel);
    if (fd < 0) return false;
    for (std::size_t pages = max_ring_pages; pages >= min_ring_pages; pages /= 2) {
        const std::size_t bytes = pages * page_bytes();
        void* base = mmap(nullptr, page_bytes() + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (base == MAP_FAILED) continue;
        rings_.push_back({fd, base, bytes});
        return true;
    }
    const int error = errno;
    close(fd);
    errno = error;
    return false;
}

bool KernelEvents::watch(pid_t process) {
    for (int processor = 0; processor < sysconf(_SC_NPROCESSORS_CONF); ++processor) {
        if (with_kernel_ && open_ring(process, processor, true)) continue;
        if (errno == ENODEV) continue;  // the processor is offline
        if (!rings_.empty() && with_kernel_) {
            why_ = refusal(errno);
            return false;
        }
        with_kernel_ = false;
        if (!open_ring(process, processor, false) && errno != ENODEV) {
            why_ = refusal(errno);
            return false;
        }
    }
    return !rings_.empty();
}

void KernelEvents::wait(int milliseconds, std::initializer_list<int> others) const {
    std::vector<pollfd> all;
    all.reserve(rings_.size() + others.size());
    for (const Ring& ring : rings_) all.push_back({ring.fd, POLLIN, 0});
    for (const int fd : others) all.push_back({fd, POLLIN, 0});
    poll(all.data(), all.size(), milliseconds);
}

void KernelEvents::drain(const std::function<void(KernelEvent&&)>& take) {
    for (const Ring& ring : rings_) {
        auto* head = static_cast<perf_event_mmap_page*>(ring.base);
        const Reader reader(static_cast<const char*>(ring.base) + page_bytes(), ring.bytes);
        const std::uint64_t end = std::atomic_ref(head->data_head).load(std::memory_order_acquire);
        std::uint64_t tail = head->data_tail;
        while (tail < end) {
            perf_event_header record;
            reader.read(tail, &record, sizeof record);
            if (record.size < sizeof record) break;
            const std::uint64_t body = tail + sizeof record;
            const std::size_t size = record.size - sizeof record;
            Ids ids{};
            if (size >= sizeof ids) reader.read(tail + record.size - sizeof ids, &ids, sizeof ids);
            tail += record.size;
            KernelEvent event;
            switch (record.type) {
                case PERF_RECORD_SAMPLE: take(read_fault(reader, body)); continue;
                case PERF_RECORD_LOST: {
                    std::uint64_t id_and_lost[2];
                    reader.read(body, id_and_lost, sizeof id_and_lost);
                    lost_ += id_and_lost[1];
                    continue;
                }
                case PERF_RECORD_MMAP2: event = read_mapping(reader, body, size); break;
                case PERF_RECORD_COMM:
                    if ((record.misc & PERF_RECORD_MISC_COMM_EXEC) == 0) continue;
                    event.kind = KernelEvent::Kind::exec;
                    event.pid = ids.pid;
                    event.tid = ids.tid;
                    break;
                case PERF_RECORD_FORK:
                case PERF_RECORD_EXIT: {
                    Forked forked{};
                    reader.read(body, &forked, sizeof forked);
                    event.kind = record.type == PERF_RECORD_FORK ? KernelEvent::Kind::start
                                                                 : KernelEvent::Kind::exit;
                    event.pid = forked.pid;
                    event.tid = forked.tid;
                    event.parent = forked.parent;
                    break;
                }
                default: continue;
            }
            event.ns = ids.time;
            take(std::move(event));
        }
        std::atomic_ref(head->data_tail).store(tail, std::memory_order_release);
    }
}

}  // namespace assay::numa
