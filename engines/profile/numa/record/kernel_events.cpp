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

#include "core/error.hpp"

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

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

// What is the same for all events: their samples are read together (kernel_records.hpp).
perf_event_attr attributes() {
    perf_event_attr wanted{};
    wanted.size = sizeof wanted;
    wanted.sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID |
                         PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR | PERF_SAMPLE_CPU |
                         PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
    wanted.sample_regs_user = wanted_registers;
    wanted.sample_stack_user = stack_bytes;
    wanted.sample_id_all = 1;
    wanted.disabled = wanted.enable_on_exec = 1;
    wanted.inherit = 1;
    wanted.use_clockid = 1;
    wanted.clockid = CLOCK_MONOTONIC;
    wanted.exclude_hv = 1;
    wanted.watermark = 1;
    wanted.wakeup_watermark = wakeup_bytes;
    return wanted;
}

int open_event(perf_event_attr wanted, pid_t process, int processor, int leader = -1) {
    return static_cast<int>(
        syscall(SYS_perf_event_open, &wanted, process, processor, leader, PERF_FLAG_FD_CLOEXEC));
}

perf_event_attr faults(bool with_kernel) {
    perf_event_attr wanted = attributes();
    wanted.type = PERF_TYPE_SOFTWARE;
    wanted.config = PERF_COUNT_SW_PAGE_FAULTS;
    wanted.sample_period = 1;
    wanted.mmap = wanted.mmap2 = 1;
    wanted.comm = wanted.comm_exec = 1;
    wanted.task = 1;
    wanted.exclude_kernel = with_kernel ? 0 : 1;
    return wanted;
}

// An event on one processor with its leader, if it has one.
struct Sampler {
    int fd = -1, leader = -1;
};

// Of a process, or of the whole machine where the PMU cannot tell processes apart: AMD's before
// Linux 6.2. `fd` is -1 and errno set where the system refuses.
Sampler open_sampler(const MemoryEvent& event, pid_t process, int processor) {
    perf_event_attr wanted = attributes();
    wanted.sample_type |= PERF_SAMPLE_DATA_SRC;
    wanted.type = event.type;
    wanted.config = event.config[0];
    wanted.config1 = event.config[1];
    wanted.config2 = event.config[2];
    wanted.sample_period = event.period;
    wanted.exclude_kernel = wanted.exclude_hv = event.leaves_out_kernel ? 1 : 0;
    // Intel's records of the accessing instruction; a software event of a test ignores it.
    if (event.operation != Operation::none) wanted.precise_ip = 2;
    Sampler opened;
    if (event.leader) {
        perf_event_attr first = attributes();
        first.type = event.type;
        first.config = *event.leader;
        first.exclude_kernel = 1;
        opened.leader = open_event(first, process, processor);
        if (opened.leader < 0) return opened;
    }
    opened.fd = open_event(wanted, process, processor, opened.leader);
    if (opened.fd >= 0 || errno != EINVAL || event.operation != Operation::none) return opened;
    wanted.inherit = wanted.enable_on_exec = wanted.disabled = 0;
    opened.fd = open_event(wanted, -1, processor);
    return opened;
}

std::string paranoia() {
    std::ifstream file("/proc/sys/kernel/perf_event_paranoid");
    std::string level;
    file >> level;
    return level.empty() ? "unknown" : level;
}

std::string refusal(int error) {
    if (error == EACCES || error == EPERM)
        return fmt::format(
            "page faults cannot be watched: kernel.perf_event_paranoid is {}; fix: sysctl "
            "kernel.perf_event_paranoid=1",
            paranoia());
    return fmt::format("page faults cannot be watched: perf_event_open: {}", std::strerror(error));
}

Error sampling_error(const MemoryEvent& event, int error) {
    if (error == EACCES || error == EPERM)
        return Error(fmt::format("accesses cannot be sampled: {} is not allowed with "
                                 "kernel.perf_event_paranoid {}",
                                 event.name, paranoia()),
                     event.leaves_out_kernel
                         ? "sysctl kernel.perf_event_paranoid=2"
                         : "run as root, or sysctl kernel.perf_event_paranoid=-1");
    return Error(fmt::format("accesses cannot be sampled: the kernel refuses {}: {}", event.name,
                             std::strerror(error)),
                 "leave out --samples to see first touches");
}

bool counts_on(const MemoryEvent& event, int processor) {
    return event.processors.empty() ||
           std::ranges::find(event.processors, processor) != event.processors.end();
}

}  // namespace

KernelEvents::~KernelEvents() {
    for (const int fd : samplers_) close(fd);
    for (const Ring& ring : rings_) {
        munmap(ring.base, page_bytes() + ring.bytes);
        close(ring.fd);
    }
}

bool KernelEvents::open_ring(pid_t process, int processor, bool with_kernel) {
    const int fd = open_event(faults(with_kernel), process, processor);
    if (fd < 0) return false;
    for (std::size_t pages = max_ring_pages; pages >= min_ring_pages; pages /= 2) {
        const std::size_t bytes = pages * page_bytes();
        void* base = mmap(nullptr, page_bytes() + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (base == MAP_FAILED) continue;
        rings_.push_back({fd, processor, base, bytes});
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

void KernelEvents::sample(pid_t process, const std::vector<MemoryEvent>& events) {
    for (const Ring& ring : rings_) {
        for (const MemoryEvent& event : events) {
            if (!counts_on(event, ring.processor)) continue;
            const Sampler opened = open_sampler(event, process, ring.processor);
            const int error = errno;
            if (opened.leader >= 0) samplers_.push_back(opened.leader);
            if (opened.fd < 0) throw sampling_error(event, error);
            samplers_.push_back(opened.fd);
            std::uint64_t id = 0;
            if (ioctl(opened.fd, PERF_EVENT_IOC_SET_OUTPUT, ring.fd) != 0 ||
                ioctl(opened.fd, PERF_EVENT_IOC_ID, &id) != 0)
                throw sampling_error(event, errno);
            accesses_[id] = event.operation;
        }
    }
    if (accesses_.empty())
        throw Error("accesses cannot be sampled: no processor here has the events",
                    "leave out --samples to see first touches");
}

void KernelEvents::drain(const std::function<void(KernelEvent&&)>& take) {
    for (const Ring& ring : rings_) {
        auto* control = static_cast<perf_event_mmap_page*>(ring.base);
        const RingBytes bytes{static_cast<const char*>(ring.base) + page_bytes(), ring.bytes};
        const std::uint64_t head =
            std::atomic_ref(control->data_head).load(std::memory_order_acquire);
        read_records(bytes, control->data_tail, head, accesses_, take, losses_);
        std::atomic_ref(control->data_tail).store(head, std::memory_order_release);
    }
}

void try_memory_events(const std::vector<MemoryEvent>& events) {
    for (const MemoryEvent& event : events) {
        const int processor = event.processors.empty() ? 0 : event.processors.front();
        const Sampler opened = open_sampler(event, 0, processor);
        const int error = errno;
        for (const int fd : {opened.fd, opened.leader})
            if (fd >= 0) close(fd);
        if (opened.fd < 0) throw sampling_error(event, error);
    }
}

}  // namespace assay::numa
