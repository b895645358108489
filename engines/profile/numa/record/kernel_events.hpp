// The kernel's events of a program and of all that it starts: page faults with the registers and
// the innermost part of the stack, and mappings, names, starts and ends of processes; and samples
// of its memory accesses where wanted (perf_event_open(2)).
//
// Page faults need no PMU and are seen in virtual machines. A user may watch his own processes if
// kernel.perf_event_paranoid is 2 or less; faults inside system calls are seen with 1 or less.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "profile/numa/record/kernel_records.hpp"
#include "profile/numa/record/memory_events.hpp"

namespace assay::numa {

// Opens each event once and closes it. Throws Error where the system does not allow it.
void try_memory_events(const std::vector<MemoryEvent>& events);

class KernelEvents {
public:
    KernelEvents() = default;
    ~KernelEvents();
    KernelEvents(const KernelEvents&) = delete;
    KernelEvents& operator=(const KernelEvents&) = delete;

    // Watches a process that waits before its exec, and all that it starts. False if the system
    // does not allow it; `why` then says so.
    bool watch(pid_t process);
    // Samples its accesses too; `watch` has succeeded. Throws Error where that is not possible.
    // The samples may be of all processes of the machine.
    void sample(pid_t process, const std::vector<MemoryEvent>& events);
    const std::string& why() const { return why_; }
    bool sees_system_calls() const { return with_kernel_; }

    // Calls `take` for each new event; those of one processor are in the order of time.
    void drain(const std::function<void(KernelEvent&&)>& take);
    // Waits until a ring fills, one of `others` is readable or the time is over.
    void wait(int milliseconds, std::initializer_list<int> others) const;
    const Losses& losses() const { return losses_; }

private:
    struct Ring {
        int fd, processor;
        void* base;
        std::size_t bytes;
    };
    bool open_ring(pid_t process, int processor, bool with_kernel);

    std::vector<Ring> rings_;
    std::vector<int> samplers_;  // descriptors, whose events go into the rings
    AccessEvents accesses_;
    std::string why_;
    bool with_kernel_ = true;
    Losses losses_;
};

}  // namespace assay::numa
