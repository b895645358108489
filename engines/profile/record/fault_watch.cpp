// Opens perf events for page faults and reads their ring buffers.
#include "profile/record/fault_watch.hpp"

#include <asm/perf_regs.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <thread>

namespace assay::heap {
namespace {

// Pages of a ring. The default limit of locked memory suffices for 128 on each processor; what else
// the user watches takes its part of it.
constexpr std::size_t max_ring_pages = 1024, min_ring_pages = 16;
// Each counter takes a file descriptor, and some microseconds during which the threads are stopped.
constexpr std::size_t max_counters = 16384;
// A processor that has counted a fault writes it into its ring within this time.
constexpr auto writing_time = std::chrono::milliseconds(1);

#if defined(__aarch64__)
constexpr int pc_register = PERF_REG_ARM64_PC;
#else
constexpr int pc_register = PERF_REG_X86_IP;
#endif

// The kernel's layout of PERF_RECORD_SAMPLE up to the registers (perf_event_open(2)).
struct Sample {
    std::uint64_t pc;
    std::uint32_t pid, tid;
    std::uint64_t time, address;
    std::uint64_t registers_abi;
};

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

int open_event(perf_event_attr attributes, pid_t thread, int processor) {
    attributes.size = sizeof attributes;
    attributes.type = PERF_TYPE_SOFTWARE;
    attributes.exclude_hv = 1;
    attributes.use_clockid = 1;
    attributes.clockid = CLOCK_MONOTONIC_RAW;
    return static_cast<int>(
        syscall(SYS_perf_event_open, &attributes, thread, processor, -1, PERF_FLAG_FD_CLOEXEC));
}

// Opens a dummy event, whose ring the counters of all threads on this processor share.
int open_ring_owner(int processor) {
    perf_event_attr attributes{};
    attributes.config = PERF_COUNT_SW_DUMMY;
    attributes.exclude_kernel = 1;
    return open_event(attributes, 0, processor);
}

int open_counter(pid_t thread, int processor, FaultWatch::StartAt start, bool include_kernel) {
    perf_event_attr attributes{};
    attributes.config = PERF_COUNT_SW_PAGE_FAULTS;
    attributes.sample_period = 1;
    attributes.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME |
                             PERF_SAMPLE_ADDR | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
    attributes.sample_regs_user = std::uint64_t{1} << pc_register;
    attributes.sample_stack_user = sizeof(FaultStack);
    attributes.disabled = attributes.enable_on_exec = start == FaultWatch::StartAt::exec ? 1 : 0;
    attributes.inherit = 1;
    attributes.exclude_kernel = include_kernel ? 0 : 1;
    return open_event(attributes, thread, processor);
}

}  // namespace

FaultWatch::~FaultWatch() {
    close_counters();
    for (const Ring& ring : rings_) {
        munmap(ring.base, page_bytes() + ring.bytes);
        close(ring.fd);
    }
}

bool FaultWatch::prepare() {
    for (int processor = 0; processor < sysconf(_SC_NPROCESSORS_CONF); ++processor) {
        const int fd = open_ring_owner(processor);
        if (fd < 0 && errno == ENODEV) continue;  // offline
        if (fd < 0) return false;
        void* base = MAP_FAILED;
        std::size_t bytes = 0;
        for (std::size_t pages = max_ring_pages; base == MAP_FAILED && pages >= min_ring_pages;
             pages /= 2) {
            bytes = pages * page_bytes();
            base = mmap(nullptr, page_bytes() + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        }
        if (base == MAP_FAILED) {
            close(fd);
            return false;
        }
        rings_.push_back({processor, fd, base, bytes});
    }
    return !rings_.empty();
}

bool FaultWatch::watch(std::span<const pid_t> threads, StartAt start) {
    bool is_allowed = !rings_.empty() && threads.size() * rings_.size() <= max_counters;
    for (const pid_t thread : threads)
        for (const Ring& ring : rings_) is_allowed = is_allowed && watch(thread, ring, start);
    if (!is_allowed) close_counters();
    return is_allowed;
}

bool FaultWatch::watch(pid_t thread, const Ring& ring, StartAt start) {
    int fd = open_counter(thread, ring.processor, start, true);
    if (fd < 0) fd = open_counter(thread, ring.processor, start, false);
    if (fd < 0) return errno == ESRCH;  // the thread has ended
    counters_.push_back(fd);
    return ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, ring.fd) == 0;
}

void FaultWatch::close_counters() {
    for (const int fd : counters_) close(fd);
    counters_.clear();
}

void FaultWatch::drain(const std::function<void(const Fault&)>& handle) {
    for (const Ring& ring : rings_) {
        auto* control = static_cast<perf_event_mmap_page*>(ring.base);
        const char* data = static_cast<const char*>(ring.base) + page_bytes();
        const std::uint64_t end =
            std::atomic_ref(control->data_head).load(std::memory_order_acquire);
        std::uint64_t tail = control->data_tail;
        const auto read = [&](std::uint64_t position, void* buffer, std::size_t size) {
            const std::size_t first = std::min(size, ring.bytes - position % ring.bytes);
            std::memcpy(buffer, data + position % ring.bytes, first);
            std::memcpy(static_cast<char*>(buffer) + first, data, size - first);
        };
        const auto read_sample = [&](std::uint64_t position) {
            Sample sample;
            read(position, &sample, sizeof sample);
            position += sizeof sample;
            Fault fault{sample.pid, sample.tid, sample.time, sample.pc, sample.address, {}};
            if (sample.registers_abi != PERF_SAMPLE_REGS_ABI_NONE) {
                read(position, &fault.pc, sizeof fault.pc);
                position += sizeof fault.pc;
            }
            std::uint64_t copied_bytes = 0;
            std::uint64_t used_bytes = 0;  // the valid part of the copy
            read(position, &copied_bytes, sizeof copied_bytes);
            if (copied_bytes == 0 || copied_bytes > sizeof fault.stack) return fault;
            read(position + sizeof copied_bytes + copied_bytes, &used_bytes, sizeof used_bytes);
            read(position + sizeof copied_bytes, fault.stack.data(),
                 std::min(copied_bytes, used_bytes));
            return fault;
        };
        while (tail < end) {
            perf_event_header record;
            read(tail, &record, sizeof record);
            if (record.size == 0) break;
            if (record.type == PERF_RECORD_SAMPLE) {
                ++passed_on_;
                handle(read_sample(tail + sizeof record));
            } else if (record.type == PERF_RECORD_LOST) {
                std::uint64_t id_and_lost[2];
                read(tail + sizeof record, id_and_lost, sizeof id_and_lost);
                told_ += id_and_lost[1];
            }
            tail += record.size;
        }
        std::atomic_ref(control->data_tail).store(tail, std::memory_order_release);
    }
    lost_ = std::max(lost_, told_);
}

void FaultWatch::drain_all(const std::function<void(const Fault&)>& handle) {
    const std::uint64_t counted = read_counters();
    drain(handle);
    if (counted > passed_on_) {
        std::this_thread::sleep_for(writing_time);
        drain(handle);
    }
    if (counted > passed_on_) lost_ = std::max(lost_, counted - passed_on_);
}

// All faults so far, of ended threads as well.
std::uint64_t FaultWatch::read_counters() const {
    std::uint64_t sum = 0;
    for (const int fd : counters_) {
        std::uint64_t count = 0;
        if (read(fd, &count, sizeof count) == sizeof count) sum += count;
    }
    return sum;
}

}  // namespace assay::heap
