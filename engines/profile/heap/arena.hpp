// The arena: the file that a profiled process and the recorder share, one per process, mapped by
// both.
//
// The process fills buffers with events; the recorder copies full buffers into the trace and frees
// them. The file is in shared memory, so no event is lost when the process is killed: the recorder
// also copies partly filled buffers. The file is sparse and takes only the memory that is used. The
// process allocates that memory before it touches it. If there is none, the program continues, and
// the lost events are counted.
//
//     ArenaHeader | nodes of the stack tree | up to 16,384 buffers of 64 KiB
//
// A buffer is free, or being filled by one thread, or full. It begins with a BufferHeader; then
// events follow (event_layout.hpp). Numbers have the machine's native layout, since the file never
// leaves the machine.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "profile/stack/tree.hpp"

namespace assay::heap {

inline constexpr std::uint64_t arena_magic = 0x3150414548595341;  // "ASYHEAP1"
// A thread keeps its buffer until it is full or the thread ends, so this is the maximum number of
// simultaneous threads. There are fewer if the address space or the size of files is limited.
inline constexpr std::uint32_t max_buffers = 16384, min_buffers = 512;
inline constexpr std::uint32_t buffer_bytes = 64 << 10;
inline constexpr std::uint32_t notes_bytes = 16 << 10, max_note_bytes = 5 << 10;
inline constexpr std::uint32_t node_count = 1 << 24;  // limited by stack_bits of an event

// Environment variables with the settings of the hooks.
inline constexpr char directory_variable[] = "ASSAY_HEAP";           // the directory of the arenas
inline constexpr char min_block_variable[] = "ASSAY_HEAP_AT_LEAST",  // bytes: see Filter
    sample_variable[] = "ASSAY_HEAP_SAMPLE",                         // bytes: see Filter
    ranks_variable[] = "ASSAY_HEAP_RANKS",                           // "0,3"; unset: all ranks
    no_python_variable[] = "ASSAY_HEAP_NO_PYTHON";                   // set: no Python frames

// The kind of an event. The numbers are part of the trace format; 13 is unused.
enum class Kind : std::uint8_t {
    malloc = 1,
    calloc,
    memalign,
    realloc_from,  // `address` is about to be reallocated; the same thread's realloc follows
    realloc,       // the new block; on failure the old address, with size `not_reallocated`
    free,
    map,         // mmap; an mremap is recorded as unmap and map
    unmap,       // munmap
    brk,         // brk or sbrk by the program: the new end, and the growth in bytes
    modules,     // text: the loaded objects; written when their list has changed
    thread,      // text: the thread's number in the system, and its name
    mappings,    // text: a line of the list of mappings, written at the end of the process
    stack = 14,  // `size`: depth of the thread's stack; if `stack` is 0, its resident bytes at exit
    python,      // text: functions of Python frames (heap/python.hpp)
};

// A decoded event.
struct Event {
    std::uint64_t time;        // time-stamp counter, after an allocation or before a free
    std::uint64_t address;     // of the block; its 8 high bits hold the Kind
    std::uint64_t size;        // requested bytes; for realloc the new size
    std::uint32_t stack;       // node of the stack tree
    std::uint32_t call_ticks;  // duration of the call; 0 if it was not timed
};
static_assert(sizeof(Event) == 32);

inline constexpr std::uint64_t not_reallocated = ~std::uint64_t{0};

inline constexpr int kind_shift = 56;
inline constexpr std::uint64_t address_mask = (std::uint64_t{1} << kind_shift) - 1;

struct BufferHeader {
    std::atomic<std::uint32_t> used;  // bytes of events; updated after they are written
    std::uint32_t thread;             // serial of the thread that fills it
    std::uint32_t sequence;           // among this thread's buffers
    std::uint32_t reserved;
    // Time of the thread's last event before this buffer: ticks >> time_shift.
    std::uint64_t coarse_time;
    std::uint64_t reserved2;
};
inline constexpr std::uint32_t buffer_room = buffer_bytes - sizeof(BufferHeader);

enum class BufferState : std::uint32_t { free, filling, full };

enum class EndState : std::uint32_t {
    none,     // running, or killed
    exited,   // ended normally
    detached  // runs on without being recorded
};

// Why events were lost.
enum class Shortage : std::uint32_t {
    none,
    memory,   // the file system of the arena is full
    buffers,  // more threads than buffers
    sampled   // no room in the table of sampled blocks
};

struct ArenaHeader {
    std::uint64_t magic;
    std::uint32_t pid, parent;
    std::uint64_t start_ticks;                             // time-stamp counter at the start
    std::uint64_t start_ns;                                // CLOCK_MONOTONIC_RAW at the start
    char program[256];                                     // argv[0], from /proc/self/cmdline
    char executable[1024];                                 // path of the executable
    char rank[16];                                         // in an MPI program; empty otherwise
    alignas(64) std::atomic<std::uint32_t> buffers_freed;  // futex: incremented by the recorder
    alignas(64) std::atomic<std::uint32_t> recorder_gone;  // 1: recording has stopped
    std::atomic<std::uint32_t> end_state;                  // an EndState
    std::atomic<std::uint32_t> recorder;  // pid of the recorder; 0 before it has mapped the arena
    std::atomic<std::uint64_t> lost_events;   // events that could not be recorded
    std::atomic<std::uint32_t> thread_count;  // thread serials used so far
    std::atomic<std::uint32_t> buffers_used;  // one more than the highest buffer used so far
    std::atomic<std::uint32_t> shortage;      // a Shortage
    std::uint32_t own_allocator;              // 1: the executable exports a malloc
    std::uint32_t buffer_count;
    std::atomic<std::uint32_t> notes_used;      // bytes of `notes`
    std::atomic<std::uint32_t> notes_left_out;  // notes that did not fit
    alignas(64) std::atomic<std::uint32_t> nodes_used;
    alignas(64) std::atomic<std::uint32_t> buffer_states[max_buffers];
    char notes[notes_bytes];  // unrecorded programs: path, NUL, reason, NUL
};

inline constexpr std::size_t header_bytes = (sizeof(ArenaHeader) + 4095) & ~std::size_t{4095};
inline constexpr std::size_t nodes_offset = header_bytes;
inline constexpr std::size_t buffers_offset =
    nodes_offset + std::size_t{node_count} * sizeof(stack::Node);
constexpr std::size_t arena_bytes(std::uint32_t buffers) {
    return buffers_offset + std::size_t{buffers} * buffer_bytes;
}

}  // namespace assay::heap
