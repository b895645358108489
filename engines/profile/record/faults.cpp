#include "profile/record/faults.hpp"

#include <linux/perf_event.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <ctime>

namespace assay::heap {
namespace {

constexpr std::size_t ring_pages = 128;  // what the kernel gives each user for a processor

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

int open_counter(pid_t pid, int processor, bool with_kernel) {
    perf_event_attr wanted{};
    wanted.type = PERF_TYPE_SOFTWARE;
    wanted.size = sizeof wanted;
    wanted.config = PERF_COUNT_SW_PAGE_FAULTS;
    wanted.sample_period = 1;
    wanted.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR;
    wanted.disabled = wanted.enable_on_exec = wanted.inherit = 1;
    wanted.exclude_hv = 1;
    wanted.exclude_kernel = with_kernel ? 0 : 1;
    wanted.use_clockid = 1;
    wanted.clockid = CLOCK_REALTIME;
    return static_cast<int>(syscall(SYS_perf_event_open, &wanted, pid, processor, -1, PERF_FLAG_FD_CLOEXEC));
}

}  // namespace

FaultWatch::~FaultWatch() {
    for (const Ring& ring : rings_) {
        munmap(ring.base, (ring_pages + 1) * page_bytes());
        close(ring.fd);
    }
}

bool FaultWatch::start(pid_t pid) {
    for (int processor = 0; processor < sysconf(_SC_NPROCESSORS_CONF); ++processor) {
        int fd = open_counter(pid, processor, true);
        if (fd < 0) fd = open_counter(pid, processor, false);
        if (fd < 0) continue;  // offline, or not allowed
        void* base = mmap(nullptr, (ring_pages + 1) * page_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (base == MAP_FAILED) {
            close(fd);
            continue;
        }
        rings_.push_back({fd, base});
    }
    return !rings_.empty();
}

void FaultWatch::drain(const std::function<void(const Fault&)>& take) {
    const std::size_t bytes = ring_pages * page_bytes();
    for (const Ring& ring : rings_) {
        auto* head = static_cast<perf_event_mmap_page*>(ring.base);
        const char* data = static_cast<const char*>(ring.base) + page_bytes();
        const std::uint64_t end = std::atomic_ref(head->data_head).load(std::memory_order_acquire);
        std::uint64_t at = head->data_tail;
        const auto read = [&](std::uint64_t from, void* into, std::size_t size) {
            for (std::size_t k = 0; k < size; ++k) static_cast<char*>(into)[k] = data[(from + k) % bytes];
        };
        while (at < end) {
            perf_event_header record;
            read(at, &record, sizeof record);
            if (record.size == 0) break;
            if (record.type == PERF_RECORD_SAMPLE) {
                struct {
                    std::uint64_t pc;
                    std::uint32_t pid, tid;
                    std::uint64_t time, address;
                } sample;
                read(at + sizeof record, &sample, sizeof sample);
                take({sample.pid, sample.tid, sample.time, sample.pc, sample.address});
            } else if (record.type == PERF_RECORD_LOST) {
                std::uint64_t id_and_lost[2];
                read(at + sizeof record, id_and_lost, sizeof id_and_lost);
                lost_ += id_and_lost[1];
            }
            at += record.size;
        }
        std::atomic_ref(head->data_tail).store(at, std::memory_order_release);
    }
}

}  // namespace assay::heap
