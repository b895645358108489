// The node-local store as it lies in memory, on a device or in a file: what survives a crash, drawn
// once.
//
//   superblock | table of files | for each rank of the node: head page, ring of records, ring of
//     data
//
// A rank writes into its own rings only. Data go into the data ring first, then a record says what
// they are, then `tail` publishes the record: whatever `tail` covers is whole, however the writer
// ended. Every other process of the node maps the same store and reads it directly. Positions in
// both rings only grow; what lies at position p is found at p modulo the ring's size. Everything is
// little-endian, as the machines are that this runs on.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace assay::storage {

constexpr std::uint64_t store_magic = 0x31306f6979617373;  // "ssayio01"
constexpr std::uint32_t store_version = 2;
constexpr std::size_t page = 4096;
constexpr std::size_t line = 64;
constexpr std::size_t file_slots = 4096;
constexpr std::size_t pointer_slots = 504;  // shared file pointers of files open at a time
constexpr std::size_t path_limit = 3840;

enum class Phase : std::uint32_t { making, active, clean, detached };
enum class Kind : std::uint64_t { data = 1, truncate = 2, filed = 3 };

// One write: `count` blocks of `length` bytes, at `begin`, `begin + stride`, ... of the file, which
// lie one after the other from `place` on in the rank's data ring. A truncation has the file's new
// size in `begin`. What is filed lies in no ring: the file system has those blocks as they were
// written at `sequence`.
struct alignas(line) Record {
    std::uint64_t
        sequence;  // nanoseconds of the job's clock: the newest write of a byte is the byte's value
    std::uint32_t file;        // slot in the table of files
    std::uint32_t generation;  // of that slot
    std::uint64_t begin, length, stride;
    std::uint64_t kind : 8;
    std::uint64_t count : 56;
    std::uint64_t place;
    std::uint64_t check;  // XXH3 of all before it
};
static_assert(sizeof(Record) == line);

struct Superblock {
    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t ranks;  // of this node
    std::uint64_t bytes, record_slots, ring_bytes;
    char job[40], host[64];
    std::int64_t created;  // seconds since the epoch
    std::uint32_t persistent;
    std::atomic<Phase> phase;
    alignas(line) std::atomic<std::int64_t> skew;    // added to this node's clock
    alignas(line) std::atomic<std::uint32_t> hurry;  // someone waits for the drain: a futex
    alignas(line) std::atomic<std::uint32_t> table_lock;
    alignas(line) std::atomic<std::uint32_t> drain_lock;  // one drains at a time
    std::atomic<std::uint32_t> drain_failed;              // errno of the first failure
    std::atomic<std::uint64_t>
        discarded;  // bytes whose file has been removed or replaced meanwhile
    alignas(line) std::atomic<std::uint64_t> pointers[pointer_slots];
    std::atomic<std::uint8_t> pointer_used[pointer_slots];
};
constexpr std::size_t superblock_bytes = 2 * page;
static_assert(sizeof(Superblock) <= superblock_bytes);

// A file that the job writes or wrote: who it is (device and inode), and how it looked when it was
// closed.
struct FileSlot {
    std::atomic<std::uint32_t> generation;  // 0: free
    std::atomic<std::uint32_t> users;
    std::uint64_t device, inode;
    std::atomic<std::uint64_t> end;            // of what was written to it
    std::atomic<std::uint64_t> forget_before;  // records older than this no longer count
    std::atomic<std::int64_t> size, changed,
        created;        // at the last close: bytes, ns, ns; size -1: never closed
    std::uint8_t gone;  // deleted: nothing of it is to be drained
    char pad[page - path_limit - 65];
    char path[path_limit];
};
static_assert(sizeof(FileSlot) == page);

struct RankHead {
    alignas(line) std::atomic<std::uint64_t> tail;     // records published
    alignas(line) std::atomic<std::uint64_t> pending;  // a write has begun that will get a sequence
                                                       // above this; 0: none
    alignas(line) std::atomic<std::uint64_t> drained;  // records that are in the file system
    alignas(line) std::atomic<std::uint64_t> first_record,
        first_byte;                                     // the oldest that are still there
    alignas(line) std::atomic<std::uint64_t> ring;      // bytes of the data ring in use: less than
                                                        // planned on a full device
    std::atomic<std::uint64_t> real;                    // bytes of the ring that are real memory
    alignas(line) std::atomic<std::uint64_t> settling;  // sequence from which on its writes are
                                                        // being put right in the file; 0: none
};
static_assert(sizeof(RankHead) <= page);

// Where the parts of a store of this shape begin.
struct Shape {
    std::uint32_t ranks;
    std::uint64_t record_slots, ring_bytes;

    static constexpr std::size_t files() { return superblock_bytes; }
    static constexpr std::size_t first_rank() { return files() + file_slots * sizeof(FileSlot); }
    std::size_t rank_bytes() const { return page + record_slots * sizeof(Record) + ring_bytes; }
    std::size_t head(std::uint32_t rank) const { return first_rank() + rank * rank_bytes(); }
    std::size_t records(std::uint32_t rank) const { return head(rank) + page; }
    std::size_t data(std::uint32_t rank) const {
        return records(rank) + record_slots * sizeof(Record);
    }
    std::size_t bytes() const { return head(ranks); }

    // The largest shape that fits: one record for every 8 KiB of data, 65536 at least.
    static Shape fitting(std::size_t bytes, std::uint32_t ranks);
};

}  // namespace assay::storage
