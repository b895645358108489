// Parses the records that the kernel writes into the ring buffer of a perf event
// (perf_event_open(2)). It makes no system calls, so that tests can pass planted rings.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "profile/numa/record/data_source.hpp"

namespace assay::numa {

inline constexpr std::size_t stack_words = 64;  // that a sample keeps of the stack

struct KernelEvent {
    enum class Kind : std::uint8_t { fault, access, map, start, exec, exit } kind = Kind::fault;
    std::uint64_t ns = 0;  // CLOCK_MONOTONIC
    std::uint32_t pid = 0, tid = 0;
    std::uint32_t parent = 0;              // start: the process that forked
    int processor = -1;                    // fault, access
    std::uint64_t address = 0;             // fault, access, map
    std::uint64_t bytes = 0;               // map
    std::uint64_t offset = 0;              // map: in the file
    bool executable = false;               // map
    std::uint64_t ip = 0, sp = 0, bp = 0;  // of the user code, also for faults in the kernel
    std::uint32_t used_words = 0;          // valid words of `stack`, which starts at sp
    std::array<std::uint64_t, stack_words> stack{};
    DataSource source{Operation::none, MemoryLevel::unknown};  // access
    std::string name;                                          // map: path
};

// The operation of each sampling event, by the event's id (PERF_SAMPLE_IDENTIFIER): a load, a
// store, or none if the data source of each sample holds the operation.
using AccessEvents = std::map<std::uint64_t, Operation>;

struct RingBytes {
    const char* data;
    std::size_t bytes;  // more than 0
};

struct Losses {
    std::uint64_t lost = 0;       // events that found no room in the ring or were malformed
    std::uint64_t throttled = 0;  // times that the kernel throttled sampling
};

// Samples hold PERF_SAMPLE_IDENTIFIER, IP, TID, TIME, ADDR, CPU, REGS_USER with three registers
// (frame pointer, stack pointer, instruction pointer) and STACK_USER; samples of `accesses` also
// hold DATA_SRC. All other records end with TID, TIME, CPU and IDENTIFIER.
//
// Calls `handle` for each record from `tail` to `head`, in order. Accesses by the kernel, and
// samples of instructions without a memory access, are skipped. A record with an impossible size
// ends the parsing: the rest up to `head` is lost.
void read_records(RingBytes ring, std::uint64_t tail, std::uint64_t head,
                  const AccessEvents& accesses, const std::function<void(KernelEvent&&)>& handle,
                  Losses& losses);

}  // namespace assay::numa
