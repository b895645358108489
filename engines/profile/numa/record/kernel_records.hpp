// Reads the records that the kernel writes into the ring of a perf event (perf_event_open(2)). It
// makes no calls: tests give it rings of their own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "profile/numa/record/data_source.hpp"

namespace assay::numa {

inline constexpr std::size_t stack_words = 64;  // of the stack that a sample keeps

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
    std::uint64_t ip = 0, sp = 0, bp = 0;  // of the program, also if the kernel touched
    std::uint32_t used = 0;                // words of `stack` that are valid, from sp
    std::array<std::uint64_t, stack_words> stack{};
    DataSource source{Operation::none, Server::unknown};  // access
    std::string name;                                     // map: path
};

// The events that sample accesses, by their number in each sample (PERF_SAMPLE_IDENTIFIER), and
// what they count: a load, a store, or none where each sample's data source tells.
using AccessEvents = std::map<std::uint64_t, Operation>;

struct RingBytes {
    const char* data;
    std::size_t bytes;  // more than 0
};

struct Losses {
    std::uint64_t lost = 0;       // events: no room in the ring, or not readable
    std::uint64_t throttled = 0;  // times that the kernel held samples back
};

// Samples hold PERF_SAMPLE_IDENTIFIER, IP, TID, TIME, ADDR, CPU, REGS_USER with three registers (of
// the frame, the stack and the instruction) and STACK_USER; those of `accesses` DATA_SRC too. All
// other records end with the TID, TIME, CPU and IDENTIFIER.
//
// Calls `take` for each record from `tail` to `head`, in their order. Accesses by the kernel, and
// samples of instructions that access nothing, are left out. What follows an impossible record is
// lost up to `head`.
void read_records(RingBytes ring, std::uint64_t tail, std::uint64_t head,
                  const AccessEvents& accesses, const std::function<void(KernelEvent&&)>& take,
                  Losses& losses);

}  // namespace assay::numa
