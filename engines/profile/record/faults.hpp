// The page faults of a program and of all that it starts: who touches memory first, and where.
//
// The kernel's own software event, one sample a fault (perf_event_open(2)), with the end of the
// thread's stack: who touches memory is mostly memset() or the like, and the question is who has
// called it. A user may watch his own processes where kernel.perf_event_paranoid is 2 or less. It
// costs the program some half of a microsecond a fault.
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
    std::uint64_t pc,
        address;  // pc: the program's own, also where the kernel has touched the page for it
    StackWords words;
};

class FaultWatch {
public:
    FaultWatch() = default;
    ~FaultWatch();
    FaultWatch(const FaultWatch&) = delete;
    FaultWatch& operator=(const FaultWatch&) = delete;

    // Room for the samples. False when the system does not allow it.
    bool prepare();
    // Of these threads and of all that they will start: from now on, or from when they exec. They
    // start none meanwhile. False when it is not allowed, or they are too many; none is watched
    // then.
    enum class From { now, exec };
    bool watch(std::span<const pid_t> threads, From from);
    // What has come since: once a processor in the order of time.
    void drain(const std::function<void(const Fault&)>& take);
    std::uint64_t lost() const { return lost_; }

private:
    struct Ring {  // of one processor
        int processor, fd;
        void* base;
        std::size_t bytes;
    };
    bool watch(pid_t thread, const Ring& ring, From from);
    void close_counters();

    std::vector<Ring> rings_;
    std::vector<int> counters_;  // one a thread and processor
    std::uint64_t lost_ = 0;
};

}  // namespace assay::heap
