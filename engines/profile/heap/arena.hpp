// What a profiled process and the recorder share: one file a process, mapped by both.
//
// The process fills buffers with events and hands them over; the recorder empties them. Everything
// lies in shared memory, so nothing is lost when the process is killed: the recorder finds its
// half-filled buffers where they were. The file is sparse; only what is used takes memory.
//
//     Header | buffers, `buffer_bytes` each | nodes of the stack tree
//
// A buffer is free, being filled by one thread, or full; the recorder looks now and then. All
// numbers are little-endian, in the machine's own layout: the file never leaves it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "profile/stack/tree.hpp"

namespace assay::heap {

inline constexpr std::uint64_t arena_magic = 0x3150414548595341;  // "ASYHEAP1"
inline constexpr std::uint32_t buffer_count = 512;
inline constexpr std::uint32_t buffer_bytes = 64 << 10;
inline constexpr std::uint32_t node_count = 1 << 24;  // as many as an event can name
inline constexpr char directory_variable[] =
    "ASSAY_HEAP";  // the directory of the arenas: where to report
// Decimal numbers: what is left out (see Process), and the ranks that are recorded, with commas
// between; all if unset.
inline constexpr char at_least_variable[] = "ASSAY_HEAP_AT_LEAST",
                      sample_variable[] = "ASSAY_HEAP_SAMPLE",
                      ranks_variable[] = "ASSAY_HEAP_RANKS";
inline constexpr char no_python_variable[] =
    "ASSAY_HEAP_NO_PYTHON";  // set: Python's frames are not looked for
// Where launchers of MPI programs say which rank a process is.
inline constexpr const char* rank_variables[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                                 "MPI_RANK", "SLURM_PROCID"};

enum class Kind : std::uint8_t {
    malloc = 1,
    calloc,
    memalign,
    realloc_from,  // about to reallocate this block; a realloc of the same thread follows
    realloc,       // the block that it has become; failed: the same block, size `not_reallocated`
    free,
    map,      // mmap; mremap is a munmap and a mmap
    unmap,    // munmap
    brk,      // brk and sbrk by the program itself: the new end, and by how much it has grown
    modules,  // the list of loaded objects has changed: text follows
    thread,   // name of the thread: text follows
    cost,     // of the event before
    wide,
    stack,   // how deep the thread's stack is, in `size`; without a `stack`: how much of it is
             // resident, at its end
    python,  // what frames of Python name (python_nodes.hpp): text follows, see heap/python.hpp
};

// An event as it is read and analysed.
struct Event {
    std::uint64_t time;     // time-stamp counter: after what gives a block, before what takes one
    std::uint64_t address;  // the block; kind in the 8 high bits
    std::uint64_t size;     // requested bytes; of a realloc the new ones
    std::uint32_t stack;    // node in the tree
    std::uint32_t cost;     // ticks that the call took; 0: not taken
};
static_assert(sizeof(Event) == 32);

inline constexpr std::uint64_t not_reallocated = ~std::uint64_t{0};

inline constexpr int kind_shift = 56;
inline constexpr std::uint64_t address_mask = (std::uint64_t{1} << kind_shift) - 1;

struct BufferHead {
    std::atomic<std::uint32_t> used;  // bytes of events, written after them
    std::uint32_t thread;             // serial of the thread that fills it
    std::uint32_t sequence;           // of this thread's buffers
    std::uint32_t reserved;
    std::uint64_t step;  // of the thread's last event before this buffer: ticks >> time_shift
    std::uint64_t reserved2;
};
inline constexpr std::uint32_t buffer_room = buffer_bytes - sizeof(BufferHead);

enum class BufferState : std::uint32_t { free, filling, full };

enum class Ending : std::uint32_t {
    none,
    by_itself,
    left
};  // left: it goes on, and nothing more is recorded

struct Header {
    std::uint64_t magic;
    std::uint32_t pid, parent;
    std::uint64_t start_ticks;  // time-stamp counter at the start
    std::uint64_t start_ns;     // CLOCK_REALTIME at the start
    char program[256];          // argv[0] as the kernel has it
    char rank[16];              // in an MPI program, as its launcher has told it; empty for none
    alignas(64) std::atomic<std::uint32_t> freed;          // futex: a buffer has been freed
    alignas(64) std::atomic<std::uint32_t> recorder_gone;  // then nothing is recorded any more
    std::atomic<std::uint32_t> ended;                      // an Ending
    std::atomic<std::uint32_t> recorder;                   // its process, once it is there
    std::atomic<std::uint64_t> lost;                       // events that could not be recorded
    std::atomic<std::uint32_t> threads;                    // given out so far
    alignas(64) std::atomic<std::uint32_t> nodes_used;
    alignas(64) std::atomic<std::uint32_t> state[buffer_count];
};

inline constexpr std::size_t header_bytes = (sizeof(Header) + 4095) & ~std::size_t{4095};
inline constexpr std::size_t nodes_offset = header_bytes + std::size_t{buffer_count} * buffer_bytes;
inline constexpr std::size_t arena_bytes =
    nodes_offset + std::size_t{node_count} * sizeof(stack::Node);

}  // namespace assay::heap
