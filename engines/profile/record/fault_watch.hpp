// Watches the page faults of a program and of all processes that it starts, to find the code that
// touches memory first.
//
// Uses the kernel's software event, one sample per fault (perf_event_open(2)), with the
// innermost words of the stack, since mostly memset() or a similar function touches the memory and
// its caller is of interest. Users may watch their own processes if kernel.perf_event_paranoid is 2
// or less. Each fault costs the program about 0.5 us.
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
    std::uint64_t ns;  // CLOCK_MONOTONIC_RAW
    std::uint64_t pc;  // of the program's code, also for faults in system calls
    std::uint64_t address;
    FaultStack stack;
};

class FaultWatch {
public:
    FaultWatch() = default;
    ~FaultWatch();
    FaultWatch(const FaultWatch&) = delete;
    FaultWatch& operator=(const FaultWatch&) = delete;

    // Maps a ring buffer for each processor. Returns false if the system does not allow it for one.
    bool prepare();
    // Watches these threads and all threads that they start, from now on or from their exec on.
    // They must not start threads during the call. Returns false, and watches none, if the system
    // does not allow it or there are too many threads.
    enum class StartAt { now, exec };
    bool watch(std::span<const pid_t> threads, StartAt start);
    // Calls `handle` for each new fault. The faults of one processor are in time order.
    void drain(const std::function<void(const Fault&)>& handle);
    // The same, and then counts how many faults the kernel has counted and did not pass on.
    void drain_all(const std::function<void(const Fault&)>& handle);
    // Faults that found no room in a ring. The kernel itself tells of a loss only when it next
    // writes into that ring; drain_all() also counts those after the last one.
    std::uint64_t lost() const { return lost_; }

private:
    struct Ring {  // the buffer of one processor
        int processor, fd;
        void* base;
        std::size_t bytes;
    };
    bool watch(pid_t thread, const Ring& ring, StartAt start);
    void close_counters();
    std::uint64_t read_counters() const;

    std::vector<Ring> rings_;
    std::vector<int> counters_;  // one per thread and processor
    std::uint64_t passed_on_ = 0, told_ = 0, lost_ = 0;
};

}  // namespace assay::heap
