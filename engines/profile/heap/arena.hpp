// The arena: the file that a profiled process and the recorder share, one per process, mapped by
// both.
//
// The process fills buffers with events; the recorder copies full buffers into the trace and frees
// them. Everything is in shared memory, so nothing is lost when the process is killed: the recorder
// finds its half-filled buffers. The file is sparse and takes only the memory that is used. The
// process asks for that memory before it touches it: where there is none, events are lost and
// counted, and the program goes on.
//
//     ArenaHeader | nodes of the stack tree | up to 16,384 buffers of 64 KiB
//
// A buffer is free, or being filled by one thread, or full. It begins with a BufferHeader; then
// events follow (event_layout.hpp). Numbers have the machine's own layout: the file never leaves
// it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "profile/stack/tree.hpp"

namespace assay::heap {

inline constexpr std::uint64_t arena_magic = 0x3150414548595341;  // "ASYHEAP1"
// A thread keeps its buffer until it is full or the thread ends, so this many threads can live at a
// time. Where the address space or the size of files is limited, there are fewer.
inline constexpr std::uint32_t max_buffers = 16384, min_buffers = 512;
inline constexpr std::uint32_t buffer_bytes = 64 << 10;
inline constexpr std::uint32_t notes_bytes = 16 << 10, max_note_bytes = 5 << 10;
inline constexpr std::uint32_t node_count = 1 << 24;  // as many as an event can name

// Environment variables that tell the hooks what to record.
inline constexpr char directory_variable[] = "ASSAY_HEAP";           // the directory of the arenas
inline constexpr char min_block_variable[] = "ASSAY_HEAP_AT_LEAST",  // bytes: see Filter
    sample_variable[] = "ASSAY_HEAP_SAMPLE",                         // bytes: see Filter
    ranks_variable[] = "ASSAY_HEAP_RANKS",                           // "0,3"; unset: all ranks
    no_python_variable[] = "ASSAY_HEAP_NO_PYTHON";                   // set: no Python frames

// What an event is. The numbers are part of the trace format; 12 and 13 are free.
enum class Kind : std::uint8_t {
    malloc = 1,
    calloc,
    memalign,
    realloc_from,  // `address` is about to be reallocated; the same thread's realloc follows
    realloc,       // the result; on failure the same address again, with size `not_reallocated`
    free,
    map,         // mmap; an mremap is recorded as unmap and map
    unmap,       // munmap
    brk,         // brk or sbrk by the program: the new end, and how much it has grown
    modules,     // text: the loaded objects; written when their list has changed
    thread,      // text: the thread's number in the system, and its name
    stack = 14,  // `size`: depth of the thread's stack; if `stack` is 0, its resident bytes at exit
    python,      // text: functions of Python frames (heap/python.hpp)
};

// An event as it is analysed.
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
    std::uint64_t step;  // time of the thread's last event before this buffer: ticks >> time_shift
    std::uint64_t reserved2;
};
inline constexpr std::uint32_t buffer_room = buffer_bytes - sizeof(BufferHeader);

enum class BufferState : std::uint32_t { free, filling, full };

enum class EndState : std::uint32_t {
    none,     // running, or killed
    exited,   // ended by itself
    detached  // goes on, but is no longer recorded
};

// Why events were lost.
enum class Shortage : std::uint32_t {
    none,
    memory,  // the file system of the arena is full
    buffers  // more threads than buffers
};

struct ArenaHeader {
    std::uint64_t magic;
    std::uint32_t pid, parent;
    std::uint64_t start_ticks;                             // time-stamp counter at the start
    std::uint64_t start_ns;                                // CLOCK_REALTIME at the start
    char program[256];                                     // argv[0], from /proc/self/cmdline
    char executable[1024];                                 // its path
    char rank[16];                                         // in an MPI program; empty otherwise
    alignas(64) std::atomic<std::uint32_t> buffers_freed;  // futex: incremented by the recorder
    alignas(64) std::atomic<std::uint32_t> recorder_gone;  // set: nothing is recorded any more
    std::atomic<std::uint32_t> end_state;                  // an EndState
    std::atomic<std::uint32_t> recorder;      // its process number; 0 until it is there
    std::atomic<std::uint64_t> lost_events;   // events that could not be recorded
    std::atomic<std::uint32_t> thread_count;  // thread serials used so far
    std::atomic<std::uint32_t> buffers_used;  // one more than the highest buffer used so far
    std::atomic<std::uint32_t> shortage;      // a Shortage
    std::uint32_t own_allocator;              // 1: the executable exports a malloc of its own
    std::uint32_t buffer_count;
    std::atomic<std::uint32_t> notes_used;      // bytes of `notes`
    std::atomic<std::uint32_t> notes_left_out;  // notes for which there was no room
    alignas(64) std::atomic<std::uint32_t> nodes_used;
    alignas(64) std::atomic<std::uint32_t> buffer_states[max_buffers];
    char notes[notes_bytes];  // what is not recorded: its path and the reason, each with its NUL
};

inline constexpr std::size_t header_bytes = (sizeof(ArenaHeader) + 4095) & ~std::size_t{4095};
inline constexpr std::size_t nodes_offset = header_bytes;
inline constexpr std::size_t buffers_offset =
    nodes_offset + std::size_t{node_count} * sizeof(stack::Node);
constexpr std::size_t arena_bytes(std::uint32_t buffers) {
    return buffers_offset + std::size_t{buffers} * buffer_bytes;
}

}  // namespace assay::heap
