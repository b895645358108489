// The kernel's events of a program and of all that it starts: page faults with the registers and
// the innermost part of the stack, and mappings, names, starts and ends of processes
// (perf_event_open(2)).
//
// It works without a PMU and in virtual machines. A user may watch his own processes if
// kernel.perf_event_paranoid is 2 or less; faults inside system calls are seen with 1 or less.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace assay::numa {

inline constexpr std::size_t stack_words = 64;  // of the stack that a fault keeps

struct KernelEvent {
    enum class Kind : std::uint8_t { fault, map, start, exec, exit } kind = Kind::fault;
    std::uint64_t ns = 0;  // CLOCK_MONOTONIC
    std::uint32_t pid = 0, tid = 0;
    std::uint32_t parent = 0;              // start: the process that forked
    int processor = -1;                    // fault
    std::uint64_t address = 0;             // fault, map
    std::uint64_t bytes = 0;               // map
    std::uint64_t offset = 0;              // map: in the file
    bool executable = false;               // map
    std::uint64_t ip = 0, sp = 0, bp = 0;  // fault: of the program, also if the kernel touched
    std::uint32_t used = 0;                // words of `stack` that are valid, from sp
    std::array<std::uint64_t, stack_words> stack{};
    std::string name;  // map: path
};

class KernelEvents {
public:
    KernelEvents() = default;
    ~KernelEvents();
    KernelEvents(const KernelEvents&) = delete;
    KernelEvents& operator=(const KernelEvents&) = delete;

    // Watches a process that waits before its exec, and all that it starts. False if the system
    // does not allow it; `why` then says so.
    bool watch(pid_t process);
    const std::string& why() const { return why_; }
    bool sees_system_calls() const { return with_kernel_; }

    // Calls `take` for each new event; those of one processor are in the order of time.
    void drain(const std::function<void(KernelEvent&&)>& take);
    // Waits until a ring fills, one of `others` is readable or the time is over.
    void wait(int milliseconds, std::initializer_list<int> others) const;
    std::uint64_t lost() const { return lost_; }

private:
    struct Ring {
        int fd;
        void* base;
        std::size_t bytes;
    };
    bool open_ring(pid_t process, int processor, bool with_kernel);

    std::vector<Ring> rings_;
    std::string why_;
    bool with_kernel_ = true;
    std::uint64_t lost_ = 0;
};

}  // namespace assay::numa
