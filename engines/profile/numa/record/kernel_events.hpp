// The perf events of a program and of all processes that it starts (perf_event_open(2)): page
// faults with the registers and the innermost part of the stack; mappings, exec, start and exit of
// processes; and, on request, samples of memory accesses.
//
// Page faults need no PMU and are seen in virtual machines. Users may watch their own processes if
// kernel.perf_event_paranoid is 2 or less. Faults inside system calls are seen with 1 or less.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "profile/numa/record/kernel_records.hpp"
#include "profile/numa/record/memory_events.hpp"

namespace assay::numa {

// Opens each event and closes it again. Throws Error if the system does not allow it.
void check_memory_events(const std::vector<MemoryEvent>& events);

class KernelEvents {
public:
    KernelEvents() = default;
    ~KernelEvents();
    KernelEvents(const KernelEvents&) = delete;
    KernelEvents& operator=(const KernelEvents&) = delete;

    // Watches a process that has not called exec yet, and all that it starts. Returns false if the
    // system does not allow it; failure() then holds the message.
    bool watch(pid_t process);
    // Also samples memory accesses. Requires a successful watch(). Throws Error if that is not
    // possible. On some PMUs the samples come from all processes of the machine.
    void sample_accesses(pid_t process, const std::vector<MemoryEvent>& events);
    const std::string& failure() const { return failure_; }
    bool includes_kernel_faults() const { return includes_kernel_; }

    // Calls `handle` for each new event. The events of one processor are in time order.
    void drain(const std::function<void(KernelEvent&&)>& handle);
    // Waits until a ring fills, a descriptor of `other_fds` is readable or the timeout expires.
    void wait(int milliseconds, std::initializer_list<int> other_fds) const;
    // Stops the counting of faults. Then, after a last drain(), losses() has also those of which
    // the kernel has not told: it does so only when it next writes into a ring.
    void stop();
    Losses losses() const;

private:
    struct Ring {
        int fd, processor;
        void* base;
        std::size_t bytes;
    };
    bool open_ring(pid_t process, int processor, bool include_kernel);

    std::vector<Ring> rings_;
    std::vector<int> samplers_;  // descriptors of the sampling events, which write into the rings
    AccessEvents accesses_;
    std::string failure_;
    bool includes_kernel_ = true;
    Losses losses_;
    std::uint64_t counted_faults_ = 0, read_faults_ = 0;
};

}  // namespace assay::numa
