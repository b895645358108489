// The format of a heap trace on disk: one file per process (a new one after an exec), a sequence of
// chunks that can be read independently.
//
//     ChunkHeader | payload | ChunkHeader | payload | ...
//
// Chunks are written in order and never changed, so the trace of a killed run is readable up to its
// last whole chunk. A damaged chunk is skipped by searching for the next header. Numbers are
// little-endian. Times are ticks of the processor's time-stamp counter; the process chunks relate
// them to CLOCK_MONOTONIC_RAW. Payloads are compressed with zstd, unless noted. By ChunkKind:
//
//     process   ProcessInfo | command line | NUL | MPI rank | NUL | nanoseconds. The last two
//               fields are decimal numbers and may be absent: the rank in MPI_COMM_WORLD of an MPI
//               program; how long an attached process had run before. The chunk is written first,
//               and again at the end with the final clocks.
//     nodes     of the stack tree, from number `first` on: parent (varint) | address (varint of the
//               zigzag delta). Some addresses stand for Python frames (heap/python_nodes.hpp).
//     modules   text, a line per loaded object: "load-bias begin end build-id path", numbers in hex
//     thread    text: "number name", the number as gettid() returns it
//     python    text: lines as in heap/python.hpp
//     raw       events of one thread, in order, as its hooks wrote them (heap/event_layout.hpp).
//               Not compressed: that would take processor time from the program. `first` is the
//               time of the thread's last event before the chunk, in steps of 16 ticks.
//     events    packed raw chunks (assay-heap pack): events of one thread as columns, each
//               compressed by itself (encode_columns below) and not again as a whole. Blocks have
//               ids instead of addresses.
//     samples   of the process's memory, as varints: time (delta) | virtual pages | resident pages
//               | those of them that belong to files or shared memory (zigzag deltas)
//     mappings  text, a line per writable mapping of an object, its zeroed pages included:
//               "begin end pages path", numbers in hex. `pages` is a bit mask of the pages that are
//               in memory, four per digit, the lowest bit first. A mapping of many pages has
//               several lines. The last such chunk counts; `first` is its time. A process that ends
//               by itself records the list as texts of its events, an empty line last: that list
//               counts then, and a packed trace has it as its last such chunk.
//     faults    page faults of the process, as varints: time (ns of CLOCK_MONOTONIC_RAW) | the
//     system's
//               thread number | instruction | address | the last words of the stack (FaultStack).
//               All but the thread are zigzag deltas. `first` is the time of the first fault. An
//               empty chunk records that faults were watched.
//     code      text, a line per function that a just-in-time compiler generated: "begin bytes
//               name", numbers in hex (record/perf_map.hpp). Of several lines for one address the
//               last counts.
//     unrecorded
//               programs that the process started and that are not recorded: pairs of a path and
//               the reason, each ended by a NUL. `count`: how many more there were.
//     lost_faults
//               `first`: how many page faults could not be recorded; the payload is empty. Absent
//               if none were lost.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "profile/heap/event_layout.hpp"
#include "profile/trace/varint.hpp"

namespace assay::heap {

// Reserved numbers of earlier formats, which are not supported: 5 (columns compressed together),
// 6 (samples without shared pages) and 9 (page faults without a stack).
enum class ChunkKind : std::uint32_t {
    process = 1,
    nodes,
    modules,
    thread,
    raw = 7,
    mappings,
    python = 10,
    faults,
    code,
    events,
    samples,
    unrecorded,
    lost_faults
};

// The words from the stack pointer upwards at a page fault; 0 beyond the end of the stack.
inline constexpr std::size_t fault_stack_words = 16;
using FaultStack = std::array<std::uint64_t, fault_stack_words>;

struct ChunkHeader {
    static constexpr std::uint32_t expected_magic = 0x50414548;  // "HEAP"
    std::uint32_t magic = expected_magic;
    ChunkKind kind{};
    std::uint32_t thread = 0;  // serial number of the thread in its process, from 0
    std::uint32_t count = 0;   // of events, nodes or samples; of a raw chunk the words
    std::uint64_t first = 0;   // time of the first event; for nodes the number of the first
    std::uint64_t last = 0;    // time of the last event; for nodes one beyond the last
    std::uint32_t raw_bytes = 0, stored_bytes = 0;  // of the payload: decompressed, in the file
    std::uint32_t payload_checksum = 0;             // low half of XXH3 of the stored payload
    std::uint32_t header_checksum = 0;  // low half of XXH3 of the fields before this one
};
static_assert(sizeof(ChunkHeader) == 48);

struct ProcessInfo {
    std::uint32_t pid = 0, parent = 0;
    // The start and the end by both clocks: the time-stamp counter and CLOCK_MONOTONIC_RAW.
    std::uint64_t start_ticks = 0, start_ns = 0, end_ticks = 0, end_ns = 0;
    std::uint64_t lost = 0;       // events that could not be recorded
    std::uint32_t end_state = 0;  // an EndState (heap/arena.hpp); none: the trace is incomplete
    std::uint32_t page_bytes = 4096;
    std::uint64_t min_block_bytes = 0;  // bytes: smaller blocks are not in the trace
    std::uint64_t sample_bytes = 0;  // mean requested bytes per recorded block; 0: all are recorded
};

// ---- events in columns

// A block's id replaces its address when a trace is packed: the thread that allocated it, and its
// number among that thread's blocks, counted from 0. No address of a user's process has bit 55.
//
//     | number 36 | thread 19 | 1 |
inline constexpr int block_number_bits = 36;
inline constexpr std::uint64_t block_id_flag = std::uint64_t{1} << 55;
inline std::uint64_t block_id(std::uint32_t thread, std::uint64_t number) {
    return block_id_flag | static_cast<std::uint64_t>(thread) << block_number_bits | number;
}
inline bool is_block_id(std::uint64_t address) { return (address & block_id_flag) != 0; }

inline Kind kind_of(const Event& event) { return static_cast<Kind>(event.address >> kind_shift); }
inline std::uint64_t address_of(const Event& event) { return event.address & address_mask; }
inline bool has_size(Kind kind) { return kind != Kind::free && kind != Kind::realloc_from; }

// Whether the event allocates a new block.
inline bool is_allocation(Kind kind, std::uint64_t address, std::uint64_t size) {
    return kind == Kind::malloc || kind == Kind::calloc || kind == Kind::memalign ||
           (kind == Kind::realloc && size != not_reallocated && address != 0);
}

// Appends the packed events of one thread to `output`. The time of the first event is stored
// relative to `first`, in ticks.
//
//     number (varint) | kinds | allocation times | other times | blocks | sizes | stacks |
//     call ticks
//
// `number` is that of the first new block; new blocks are numbered without gaps. Each column holds
// varints:
//
//     kinds       per event: kind 4 | has call ticks 1 | block of another thread 1 | raw address 1
//     times       delta to the previous event, in steps of 16 ticks: far less than the time between
//                 two threads' uses of a block
//     blocks      nothing for a new block; the age in blocks for a block of the same thread; thread
//                 and number for a block of another thread; the address if the block has no id
//     sizes       of events that have a size
//     stacks      per event
//     call ticks  of events that were timed
//
// A column is stored as two streams: the first bytes of its varints, and all other bytes. First
// bytes repeat and the others are mostly random, so separate compression saves a quarter to a half.
// Each stream is its length (varint) and, if that is not 0, the length of the zstd frame that
// follows (varint), and the frame.
void encode_columns(std::span<const Event> events, std::uint32_t thread, std::uint64_t first,
                    Bytes& output);
// Decodes `count` events that encode_columns() has encoded. Returns false if the bytes are
// malformed.
bool decode_columns(std::span<const std::uint8_t> input, std::uint32_t count, std::uint32_t thread,
                    std::uint64_t first, std::vector<Event>& output);

}  // namespace assay::heap
