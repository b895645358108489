// The layout of a node's store in memory, on a device or in a file. It survives a crash.
//
//   superblock | file table | per rank of the node: head page, record ring, data ring
//
// A rank writes into its own rings only: first the data, then a record that describes them, then
// `tail`, which publishes the record. Every record below `tail` is complete, however the writer
// ended. The other processes of the node map the same store and read it directly.
//
// Offsets in both rings only grow; ring offset p is stored at p modulo the ring's size. All numbers
// are little-endian, as on every machine that this runs on.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace assay::storage {

constexpr std::uint64_t store_magic = 0x31306f6979617373;  // "ssayio01"
constexpr std::uint32_t store_version = 2;
constexpr std::size_t page = 4096;
constexpr std::size_t cache_line = 64;
constexpr std::size_t file_slots = 4096;
constexpr std::size_t shared_pointer_slots = 504;  // files with a shared pointer, open at a time
constexpr std::size_t path_limit = 3840;

enum class Phase : std::uint32_t { formatting, active, clean, detached };
// tombstone: the data left the ring; the file system has the bytes of that sequence.
enum class RecordKind : std::uint64_t { data = 1, truncate = 2, tombstone = 3 };

// One write: `count` blocks of `length` bytes at `begin`, `begin + stride`, ... of the file. The
// data of the blocks follow each other in the rank's data ring, from `ring_offset` on. A truncation
// has the file's new size in `begin`. A tombstone has no data in the ring.
struct alignas(cache_line) Record {
    std::uint64_t sequence;    // ns of the job's clock; the highest sequence of a byte wins
    std::uint32_t file;        // slot in the file table
    std::uint32_t generation;  // of that slot
    std::uint64_t begin, length, stride;
    std::uint64_t kind : 8;
    std::uint64_t count : 56;
    std::uint64_t ring_offset;
    std::uint64_t checksum;  // XXH3 of all fields before it
};
static_assert(sizeof(Record) == cache_line);

struct Superblock {
    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t ranks;  // of this node
    std::uint64_t bytes, record_slots, ring_bytes;
    char job[40], host[64];
    std::int64_t created;  // seconds since the epoch
    std::uint32_t persistent;
    std::atomic<Phase> phase;
    alignas(cache_line) std::atomic<std::int64_t> clock_offset;     // ns, added to CLOCK_MONOTONIC
    alignas(cache_line) std::atomic<std::uint32_t> drain_requests;  // a futex that wakes the drain
    alignas(cache_line) std::atomic<std::uint32_t> table_lock;
    alignas(cache_line) std::atomic<std::uint32_t> drain_lock;  // held by the process that drains
    std::atomic<std::uint32_t> drain_failed;                    // errno of the first failure
    std::atomic<std::uint64_t> discarded;  // bytes whose file was removed or replaced
    alignas(cache_line) std::atomic<std::uint64_t> shared_pointers[shared_pointer_slots];
    std::atomic<std::uint8_t> shared_pointer_used[shared_pointer_slots];
};
constexpr std::size_t superblock_bytes = 2 * page;
static_assert(sizeof(Superblock) <= superblock_bytes);

// A file that the job has opened: its identity (device and inode), and its state at the last close.
struct FileSlot {
    std::atomic<std::uint32_t> generation;  // 0: free
    std::atomic<std::uint32_t> users;
    std::uint64_t device, inode;
    std::atomic<std::uint64_t> end;         // end of the furthest write
    std::atomic<std::uint64_t> valid_from;  // sequence: older records are ignored
    // At the last close: bytes (-1: never closed), ns, ns.
    std::atomic<std::int64_t> size, mtime_ns, ctime_ns;
    std::uint8_t deleted;  // nothing of it is drained
    char padding[page - path_limit - 65];
    char path[path_limit];
};
static_assert(sizeof(FileSlot) == page);

struct RankHead {
    alignas(cache_line) std::atomic<std::uint64_t> tail;  // records published
    // A write has begun whose sequence will be above this one; 0: none.
    alignas(cache_line) std::atomic<std::uint64_t> pending;
    alignas(cache_line) std::atomic<std::uint64_t> drained;  // records that the file system has
    // The oldest record and the oldest byte that are still in the rings.
    alignas(cache_line) std::atomic<std::uint64_t> first_record, first_byte;
    // Bytes of the data ring in use: less than planned on a full device.
    alignas(cache_line) std::atomic<std::uint64_t> ring_bytes;
    std::atomic<std::uint64_t> prefaulted;  // bytes of the data ring that have pages
    // The sequence from which on this rank rewrites its data in the file system; 0: none.
    alignas(cache_line) std::atomic<std::uint64_t> resolving;
};
static_assert(sizeof(RankHead) <= page);

// The sizes of a store, and the byte offsets of its parts.
struct StoreLayout {
    std::uint32_t ranks;
    std::uint64_t record_slots, ring_bytes;

    static constexpr std::size_t files_offset() { return superblock_bytes; }
    static constexpr std::size_t ranks_offset() {
        return files_offset() + file_slots * sizeof(FileSlot);
    }
    std::size_t rank_bytes() const { return page + record_slots * sizeof(Record) + ring_bytes; }
    std::size_t head_offset(std::uint32_t rank) const {
        return ranks_offset() + rank * rank_bytes();
    }
    std::size_t records_offset(std::uint32_t rank) const { return head_offset(rank) + page; }
    std::size_t data_offset(std::uint32_t rank) const {
        return records_offset(rank) + record_slots * sizeof(Record);
    }
    std::size_t bytes() const { return head_offset(ranks); }

    // The largest layout that fits: one record for every 8 KiB of data, 65536 at least.
    static StoreLayout fit(std::size_t bytes, std::uint32_t ranks);
};

}  // namespace assay::storage
