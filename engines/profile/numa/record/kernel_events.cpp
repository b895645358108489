// Opens the perf events of a profiled program and reads their ring buffers.
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
#include <utility>

#include "core/error.hpp"

namespace assay::numa {
namespace {

constexpr std::size_t max_ring_pages = 2048, min_ring_pages = 16;
constexpr std::uint32_t stack_bytes = stack_words * 8;
// Large, since each wake-up slows the program more than its page faults do. The recorder mostly
// polls instead.
constexpr std::uint32_t wakeup_bytes = 256 << 10;

#if defined(__aarch64__)
constexpr std::uint64_t sampled_registers = (std::uint64_t{1} << PERF_REG_ARM64_X29) |
                                            (std::uint64_t{1} << PERF_REG_ARM64_SP) |
                                            (std::uint64_t{1} << PERF_REG_ARM64_PC);
#else
constexpr std::uint64_t sampled_registers = (std::uint64_t{1} << PERF_REG_X86_BP) |
                                            (std::uint64_t{1} << PERF_REG_X86_SP) |
                                            (std::uint64_t{1} << PERF_REG_X86_IP);
#endif

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

// The attributes that all events share, since one reader parses their samples (kernel_records.hpp).
perf_event_attr base_attributes() {
    perf_event_attr attributes{};
    attributes.size = sizeof attributes;
    attributes.sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID |
                             PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR | PERF_SAMPLE_CPU |
                             PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
    attributes.sample_regs_user = sampled_registers;
    attributes.sample_stack_user = stack_bytes;
    attributes.sample_id_all = 1;
    attributes.disabled = attributes.enable_on_exec = 1;
    attributes.inherit = 1;
    attributes.use_clockid = 1;
    attributes.clockid = CLOCK_MONOTONIC;
    attributes.exclude_hv = 1;
    attributes.watermark = 1;
    attributes.wakeup_watermark = wakeup_bytes;
    return attributes;
}

int open_event(perf_event_attr attributes, pid_t process, int processor, int leader = -1) {
    return static_cast<int>(syscall(SYS_perf_event_open, &attributes, process, processor, leader,
                                    PERF_FLAG_FD_CLOEXEC));
}

perf_event_attr fault_attributes(bool include_kernel) {
    perf_event_attr attributes = base_attributes();
    attributes.type = PERF_TYPE_SOFTWARE;
    attributes.config = PERF_COUNT_SW_PAGE_FAULTS;
    attributes.sample_period = 1;
    attributes.mmap = attributes.mmap2 = 1;
    attributes.comm = attributes.comm_exec = 1;
    attributes.task = 1;
    attributes.exclude_kernel = include_kernel ? 0 : 1;
    return attributes;
}

// The descriptors of a sampling event on one processor, and of its group leader; -1: none.
struct Sampler {
    int fd = -1, leader = -1;
};

// Samples one process, or the whole machine if the PMU cannot filter by process (AMD's IBS before
// Linux 6.2). If the system refuses, `fd` is -1 and errno is set.
Sampler open_sampler(const MemoryEvent& event, pid_t process, int processor) {
    perf_event_attr attributes = base_attributes();
    attributes.sample_type |= PERF_SAMPLE_DATA_SRC;
    attributes.type = event.type;
    attributes.config = event.config[0];
    attributes.config1 = event.config[1];
    attributes.config2 = event.config[2];
    attributes.sample_period = event.period;
    attributes.exclude_kernel = attributes.exclude_hv = event.excludes_kernel ? 1 : 0;
    // PEBS records the accessing instruction itself. Software events, which tests use, ignore it.
    if (event.operation != Operation::none) attributes.precise_ip = 2;
    Sampler sampler;
    if (event.leader) {
        perf_event_attr leader_attributes = base_attributes();
        leader_attributes.type = event.type;
        leader_attributes.config = *event.leader;
        leader_attributes.exclude_kernel = 1;
        sampler.leader = open_event(leader_attributes, process, processor);
        if (sampler.leader < 0) return sampler;
    }
    sampler.fd = open_event(attributes, process, processor, sampler.leader);
    if (sampler.fd >= 0 || errno != EINVAL || event.operation != Operation::none) return sampler;
    attributes.inherit = attributes.enable_on_exec = attributes.disabled = 0;
    sampler.fd = open_event(attributes, -1, processor);
    return sampler;
}

std::string paranoid_level() {
    std::ifstream file("/proc/sys/kernel/perf_event_paranoid");
    std::string level;
    file >> level;
    return level.empty() ? "unknown" : level;
}

std::string fault_error_message(int error) {
    if (error == EACCES || error == EPERM)
        return fmt::format(
            "page faults cannot be watched: kernel.perf_event_paranoid is {}; fix: sysctl "
            "kernel.perf_event_paranoid=1",
            paranoid_level());
    return fmt::format("page faults cannot be watched: perf_event_open: {}", std::strerror(error));
}

Error sampling_error(const MemoryEvent& event, int error) {
    if (error == EACCES || error == EPERM)
        return Error(fmt::format("accesses cannot be sampled: {} is not allowed with "
                                 "kernel.perf_event_paranoid {}",
                                 event.name, paranoid_level()),
                     event.excludes_kernel
                         ? "sysctl kernel.perf_event_paranoid=2"
                         : "run as root, or sysctl kernel.perf_event_paranoid=-1");
    return Error(fmt::format("accesses cannot be sampled: the kernel refuses {}: {}", event.name,
                             std::strerror(error)),
                 "leave out --samples to see first touches");
}

bool runs_on(const MemoryEvent& event, int processor) {
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

bool KernelEvents::open_ring(pid_t process, int processor, bool include_kernel) {
    const int fd = open_event(fault_attributes(include_kernel), process, processor);
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
        if (includes_kernel_ && open_ring(process, processor, true)) continue;
        if (errno == ENODEV) continue;  // the processor is offline
        if (!rings_.empty() && includes_kernel_) {
            failure_ = fault_error_message(errno);
            return false;
        }
        includes_kernel_ = false;
        if (!open_ring(process, processor, false) && errno != ENODEV) {
            failure_ = fault_error_message(errno);
            return false;
        }
    }
    return !rings_.empty();
}

void KernelEvents::wait(int milliseconds, std::initializer_list<int> other_fds) const {
    std::vector<pollfd> descriptors;
    descriptors.reserve(rings_.size() + other_fds.size());
    for (const Ring& ring : rings_) descriptors.push_back({ring.fd, POLLIN, 0});
    for (const int fd : other_fds) descriptors.push_back({fd, POLLIN, 0});
    poll(descriptors.data(), descriptors.size(), milliseconds);
}

void KernelEvents::sample_accesses(pid_t process, const std::vector<MemoryEvent>& events) {
    for (const Ring& ring : rings_) {
        for (const MemoryEvent& event : events) {
            if (!runs_on(event, ring.processor)) continue;
            const Sampler sampler = open_sampler(event, process, ring.processor);
            const int error = errno;
            if (sampler.leader >= 0) samplers_.push_back(sampler.leader);
            if (sampler.fd < 0) throw sampling_error(event, error);
            samplers_.push_back(sampler.fd);
            std::uint64_t id = 0;
            if (ioctl(sampler.fd, PERF_EVENT_IOC_SET_OUTPUT, ring.fd) != 0 ||
                ioctl(sampler.fd, PERF_EVENT_IOC_ID, &id) != 0)
                throw sampling_error(event, errno);
            accesses_[id] = event.operation;
        }
    }
    if (accesses_.empty())
        throw Error("accesses cannot be sampled: no processor here has the events",
                    "leave out --samples to see first touches");
}

void KernelEvents::drain(const std::function<void(KernelEvent&&)>& handle) {
    for (const Ring& ring : rings_) {
        auto* control = static_cast<perf_event_mmap_page*>(ring.base);
        const RingBytes bytes{static_cast<const char*>(ring.base) + page_bytes(), ring.bytes};
        const std::uint64_t head =
            std::atomic_ref(control->data_head).load(std::memory_order_acquire);
        const auto count = [&](KernelEvent&& event) {
            read_faults_ += event.kind == KernelEvent::Kind::fault ? 1 : 0;
            handle(std::move(event));
        };
        read_records(bytes, control->data_tail, head, accesses_, count, losses_);
        std::atomic_ref(control->data_tail).store(head, std::memory_order_release);
    }
}

void KernelEvents::stop() {
    for (const Ring& ring : rings_) ioctl(ring.fd, PERF_EVENT_IOC_DISABLE, 0);
    for (const Ring& ring : rings_) {
        std::uint64_t count = 0;  // of ended processes as well
        if (read(ring.fd, &count, sizeof count) == sizeof count) counted_faults_ += count;
    }
}

Losses KernelEvents::losses() const {
    Losses losses = losses_;
    if (counted_faults_ > read_faults_)
        losses.lost = std::max(losses.lost, counted_faults_ - read_faults_);
    return losses;
}

void check_memory_events(const std::vector<MemoryEvent>& events) {
    for (const MemoryEvent& event : events) {
        const int processor = event.processors.empty() ? 0 : event.processors.front();
        const Sampler sampler = open_sampler(event, 0, processor);
        const int error = errno;
        for (const int fd : {sampler.fd, sampler.leader})
            if (fd >= 0) close(fd);
        if (sampler.fd < 0) throw sampling_error(event, error);
    }
}

}  // namespace assay::numa
