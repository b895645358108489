// Watches the page faults of a program and of all processes that it starts: which code touches
// memory first.
//
// Uses the kernel's software event, one sample per fault (perf_event_open(2)), with the last words
// of the thread's stack: mostly memset() or the like touches the memory, and its caller is wanted.
// A user may watch his own processes if kernel.perf_event_paranoid is 2 or less. It costs the
// program about 0.5 us a fault.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "profile/trace/format.hpp"

namespace assay::heap {

struct Fault {
    std::uint32_t pid, tid;
    std::uint64_t ns;  // CLOCK_REALTIME
    std::uint64_t pc;  // the program's own, also if the kernel touched the page in a system call
    std::uint64_t address;
    FaultStack stack;
};

class FaultWatch {
public:
    FaultWatch() = default;
    ~FaultWatch();
    FaultWatch(const FaultWatch&) = delete;
    FaultWatch& operator=(const FaultWatch&) = delete;

    // Maps the buffers for the samples. False if the system does not allow it.
    bool prepare();
    // Watches these threads and all that they start, from now on or from their exec on. They must
    // not start threads during the call. False if it is not allowed or there are too many threads;
    // none is watched then.
    enum class From { now, exec };
    bool watch(std::span<const pid_t> threads, From from);
    // Calls `take` for each new fault; those of one processor are in the order of time.
    void drain(const std::function<void(const Fault&)>& take);
    std::uint64_t lost() const { return lost_; }

private:
    struct Ring {  // the buffer of one processor
        int processor, fd;
        void* base;
        std::size_t bytes;
    };
    bool watch(pid_t thread, const Ring& ring, From from);
    void close_counters();

    std::vector<Ring> rings_;
    std::vector<int> counters_;  // one per thread and processor
    std::uint64_t lost_ = 0;
};

}  // namespace assay::heap
