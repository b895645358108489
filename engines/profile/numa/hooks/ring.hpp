// The ring of events from a profiled process to the recorder: a file PID.TIME.ring in shared
// memory, in a folder that an environment variable names. The process keeps no descriptor open. The
// recorder maps the file and removes its name: what the ring holds outlives the process, also after
// a crash, and nobody can open the file again to truncate it, which would end the process with
// SIGBUS. The process allocates memory of the file before it touches it. If there is none, the
// events are counted as lost.
//
// The layout is: header, events, nodes of the stack tree (profile/stack/tree.hpp). An event's slot
// is reserved by adding to `head`, and published by its `sequence`; the recorder frees it by adding
// to `tail`.
#pragma once

#include <atomic>
#include <cstdint>

#include "profile/stack/tree.hpp"

namespace assay::numa {

inline constexpr const char* rings_variable = "ASSAY_NUMA_RINGS";  // path of the folder
inline constexpr const char* min_object_variable = "ASSAY_NUMA_AT_LEAST";
inline constexpr const char* nodes_variable = "ASSAY_NUMA_EMULATE";  // number of emulated nodes
inline constexpr const char* plan_variable = "ASSAY_NUMA_PLAN";      // placements to apply

inline constexpr const char* wake_pipe_name = "wake";  // in the folder; see ring_folder.hpp
// In the folder, a file for each program that was started without the library: a line with the
// reason, then the program's path.
inline constexpr const char* note_prefix = "unrecorded-";

enum class EventKind : std::uint32_t {
    allocate = 1,  // address, bytes, stack
    release,       // address
    map,           // address, bytes, stack
    unmap,         // address, bytes
    policy,        // of a range: address, bytes, mode, mask of nodes
    thread_policy,
    thread,           // a thread's stack: address, bytes
    affinity,         // of thread `tid`: mask and more_mask, processors 0 to 127
    profiler_memory,  // the profiler's own memory: address, bytes
    finish,           // the process ends and waits for `acknowledged`
};

struct Event {
    std::uint64_t ns;  // CLOCK_MONOTONIC
    EventKind kind;
    std::uint32_t tid;
    std::uint64_t address, bytes;
    std::uint64_t mask;
    std::uint32_t stack;
    std::int32_t mode;
    std::uint64_t more_mask;
    std::atomic<std::uint64_t> sequence;  // the event's number plus 1
};
static_assert(sizeof(Event) == 64);

inline constexpr std::uint64_t ring_magic = 0x316d756e79617361;  // "asaynum1"
inline constexpr std::uint64_t ring_events = 1 << 16;
inline constexpr std::uint64_t ring_stack_nodes = 1 << 20;

struct RingHeader {
    std::uint64_t magic;
    std::int32_t pid, parent;
    alignas(64) std::atomic<std::uint64_t> head;
    alignas(64) std::atomic<std::uint64_t> tail;
    std::atomic<std::uint64_t> lost;           // events that found the ring full
    std::atomic<std::uint32_t> acknowledged;   // 1: the recorder has scanned the ending process
    std::atomic<std::uint32_t> recorder_gone;  // 1: the recorder has stopped reading
};
inline constexpr std::uint64_t ring_header_bytes = 4096;
static_assert(sizeof(RingHeader) <= ring_header_bytes);

inline constexpr std::uint64_t ring_nodes_offset = ring_header_bytes + ring_events * sizeof(Event);
inline constexpr std::uint64_t ring_bytes =
    ring_nodes_offset + ring_stack_nodes * sizeof(stack::Node);

}  // namespace assay::numa
