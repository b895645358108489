// The page faults of a program and of all that it starts: who touches memory first, and where.
//
// The kernel's own software event, one sample a fault (perf_event_open(2)), with the end of the thread's stack: who
// touches memory is mostly memset() or the like, and the question is who has called it. A user may watch his own
// processes where kernel.perf_event_paranoid is 2 or less. It costs the program some half of a microsecond a fault.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "profile/trace/format.hpp"

namespace assay::heap {

struct Fault {
    std::uint32_t pid, tid;
    std::uint64_t ns;           // CLOCK_REALTIME
    std::uint64_t pc, address;  // pc: the program's own, also where the kernel has touched the page for it
    StackWords words;
};

class FaultWatch {
public:
    FaultWatch() = default;
    ~FaultWatch();
    FaultWatch(const FaultWatch&) = delete;
    FaultWatch& operator=(const FaultWatch&) = delete;

    // Of a process that is about to exec, from then on. False when the system does not allow it.
    bool start(pid_t pid);
    // What has come since: once a processor in the order of time.
    void drain(const std::function<void(const Fault&)>& take);
    std::uint64_t lost() const { return lost_; }

private:
    struct Ring {  // of one processor
        int fd;
        void* base;
        std::size_t bytes;
    };
    std::vector<Ring> rings_;
    std::uint64_t lost_ = 0;
};

}  // namespace assay::heap
