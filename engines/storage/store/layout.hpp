// The layout of a node's store in memory, on a device or in a file. It survives a crash.
//
//   superblock | file table | descriptor table of the background drain |
//   per rank of the node: head page, descriptor table, record ring, data ring
//
// A rank writes into its own rings only: first the data, then a record that describes them, then
// `tail`, which publishes the record. Every record below `tail` is complete, however the writer
// ended. The other processes of the node map the same store and read it directly.
//
// Offsets in both rings only grow; ring offset p is stored at p modulo the ring's size. All numbers
// are little-endian, as on every machine that this runs on.
//
// Terms:
//   record       the description of one write (not a record of a run's records.jsonl)
//   sequence     the time of a write on the job's clock, in ns; the highest sequence of a byte wins
//   position     the number of a record in its rank's record ring, from the store's creation on
//   slot         an entry of the file table
//   drained      handed to the file system by the drain (drain.hpp), maybe only to its page cache
//   durable      on the file system's medium, after an fsync
//   evicted      overwritten or given up in the ring; only the file system has the data
// When data may be evicted, and when the store may be removed, is in durability.hpp.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace assay::storage {

constexpr std::uint64_t store_magic = 0x31306f6979617373;  // "ssayio01"
constexpr std::uint32_t store_version = 8;
constexpr std::size_t page = 4096;
constexpr std::size_t cache_line = 64;
constexpr std::size_t file_slots = 4096;
constexpr std::size_t shared_pointer_slots =
    4096;  // MPI's shared file pointers, one for each handle
constexpr std::size_t path_limit = 3840;

// formatting: empty. active: a job uses it. clean: the file system has all data. detached: the job
// has ended, and the file system may lack data. kept: the file system has all data, and the next
// job that names the store takes it over.
enum class Phase : std::uint32_t { formatting, active, clean, detached, kept };
// The state of the background drain (background_drain.hpp). gave_up: it has ended without writing
// all files.
enum class BackgroundState : std::uint32_t { none, starting, running, gave_up, not_started };
// Where writes of a file go: into the rings, or directly into the file. left_direct: into the
// rings, but a direct write of another rank may still run.
enum class Route : std::uint8_t { undecided, store, direct, left_direct };
// tombstone: the data of that sequence were evicted from the ring; the file system has them.
// superseded: another node has written the bytes at that sequence, so no drain and no recovery of
// this node writes its older data of them. The rank that publishes it has older data itself, which
// lie before it in the ring: so the data are evicted first, and it can be evicted like any record.
enum class RecordKind : std::uint64_t { data = 1, truncate = 2, tombstone = 3, superseded = 4 };

// One write: `count` blocks of `length` bytes at `begin`, `begin + stride`, ... of the file. The
// data of the blocks follow each other in the rank's data ring, from `ring_offset` on. A truncation
// has the file's new size in `begin`. Only records of the kind `data` have data in the ring.
struct alignas(cache_line) Record {
    std::uint64_t sequence;    // ns of the job's clock; the highest sequence of a byte wins
    std::uint32_t file;        // slot in the file table
    std::uint32_t generation;  // of that slot
    std::uint64_t begin, length, stride;
    std::uint64_t kind : 8;
    std::uint64_t count : 56;
    std::uint64_t ring_offset;
    // XXH3 of all fields before it. On persistent memory the hash of the data is its seed, so that
    // data that a power failure has torn are recognised too.
    std::uint64_t checksum;
};
static_assert(sizeof(Record) == cache_line);

struct Superblock {
    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t ranks;  // of this node
    std::uint64_t bytes, record_slots, ring_bytes;
    char job[40], host[64];
    char boot[40];                // the kernel's boot_id
    std::int64_t created;         // seconds since the epoch
    std::uint64_t pid_namespace;  // inode of /proc/self/ns/pid of the creator
    char keep[40];          // the name under which it is kept; "": it is removed after the job
    char previous_job[40];  // of a store that was taken over
    std::uint32_t nodes, previous_nodes;
    std::uint64_t torn;        // records that recovery has found torn
    std::uint32_t persistent;  // 1: it lies in persistent memory
    std::atomic<Phase> phase;
    alignas(cache_line) std::atomic<std::int64_t> clock_offset;     // ns, added to CLOCK_MONOTONIC
    alignas(cache_line) std::atomic<std::int64_t> alive_ns;         // last sign of life, realtime
    alignas(cache_line) std::atomic<std::uint32_t> drain_requests;  // a futex that wakes the drain
    // Locks hold the process number of their owner; 0: free.
    alignas(cache_line) std::atomic<std::uint32_t> table_lock;
    alignas(cache_line) std::atomic<std::uint32_t> drain_lock;
    std::atomic<std::uint32_t> sync_requests;  // a futex that wakes the drain's fsyncs
    // 1: a batch was handed to the file system, and RankHead::drained follows drained_next.
    std::atomic<std::uint32_t> batch_committed;
    std::atomic<std::uint32_t> retries;  // how often the failed writes of all files were repeated
    // The process number of the background drain (0: none), and a futex that wakes it.
    alignas(cache_line) std::atomic<std::uint32_t> background;
    std::atomic<BackgroundState> background_state;
    std::atomic<std::uint32_t> background_requests;
    alignas(cache_line) std::atomic<std::uint64_t> shared_pointers[shared_pointer_slots];
    std::atomic<std::uint8_t> shared_pointer_used[shared_pointer_slots];
};
constexpr std::size_t superblock_bytes = 10 * page;
static_assert(sizeof(Superblock) <= superblock_bytes);

// A file that the job has opened: its identity, which of its data are in the file system, and its
// state at the last close. Times are in ns since the epoch.
struct FileSlot {
    std::atomic<std::uint32_t> generation;  // 0: free
    std::atomic<std::uint32_t> users;       // open handles of this node's ranks
    std::uint64_t device, inode;
    std::int64_t birth_ns;           // 0: the file system does not say
    std::atomic<std::uint64_t> end;  // end of the furthest write
    // Sequence: readers take older data from the file, because others have changed it. At most
    // `durable`.
    std::atomic<std::uint64_t> valid_from;
    // Sequences: data that were handed to the file system are older than `drained_before`; older
    // data than `durable` are on the file's medium. Both only grow.
    std::atomic<std::uint64_t> drained_before, durable;
    // Sequence: older data are read from the file system, where other nodes may have newer ones.
    std::atomic<std::uint64_t> foreign_before;
    // Sequence of the newest record whose data have left the rings.
    std::atomic<std::uint64_t> evicted_newest;
    // At the last close: bytes (-1: never closed), times.
    std::atomic<std::int64_t> size, mtime_ns, ctime_ns;
    // The modification time after this job's last write (0: not known). The least by which the file
    // system's clock is ahead of this node's.
    std::atomic<std::int64_t> known_mtime_ns, server_skew_ns;
    std::atomic<std::uint32_t> repeats;       // how often failed writes were repeated
    std::atomic<std::uint32_t> error;         // errno of a write or an fsync that failed; 0: none
    std::atomic<std::uint32_t> failed_syncs;  // how often an fsync has failed on this node
    std::atomic<std::uint32_t> syncing;       // process number of the one that calls fsync; 0: none
    std::atomic<std::uint8_t> deleted;        // it has no name left, so its data are not drained
    std::atomic<std::uint8_t> writing;        // a drain writes it, so known_mtime_ns is outdated
    std::atomic<std::uint8_t> shared;         // other nodes or the MPI's own I/O write the file too
    // 1: sync or close has returned before the file system had all of it.
    std::atomic<std::uint8_t> acknowledged;
    std::atomic<std::uint8_t>
        background_open_failed;            // the background drain could not open the file
    std::atomic<Route> route;              // from the first opening for writing to the last close
    std::atomic<std::uint8_t> conflicted;  // several nodes have written the same bytes
    std::atomic<std::uint8_t> superseded;  // the rings may have superseded records of it
    // 1: the job has ended, and older data of other nodes may have come over this node's. What is
    // not settled is written again.
    std::atomic<std::uint8_t> repeats_unsettled;
    // Sequence: for all older writes, the file has the newest data of all nodes on its medium. No
    // node writes its older records again.
    std::atomic<std::uint64_t> settled;
    // For messages and recovery; the job itself uses descriptors.
    alignas(page - path_limit) char path[path_limit];
};
static_assert(sizeof(FileSlot) == page);

// The head page of a rank: counters of its rings. Only the rank writes them, apart from `drained`
// and `drained_next`.
struct RankHead {
    alignas(cache_line) std::atomic<std::uint64_t> tail;  // records published
    // A write has begun whose sequence will be above this one; 0: none.
    alignas(cache_line) std::atomic<std::uint64_t> pending;
    alignas(cache_line) std::atomic<std::uint64_t> drained;  // records handed to the file system
    std::atomic<std::uint64_t> drained_next;  // `drained` after the batch that is being written
    // The oldest record and the oldest byte that are still in the rings.
    alignas(cache_line) std::atomic<std::uint64_t> first_record, first_byte;
    // Size of the data ring in bytes: smaller than planned if the device is full.
    alignas(cache_line) std::atomic<std::uint64_t> ring_bytes;
    std::atomic<std::uint64_t> prefaulted;  // bytes of the data ring whose pages are allocated
    // The sequence from which on this rank rewrites its data in the file system, to resolve a
    // conflict with another node (accelerator/conflict_resolver.hpp); 0: it does not.
    alignas(cache_line) std::atomic<std::uint64_t> resolving;
    alignas(cache_line) std::atomic<std::uint32_t> pid;  // of the rank's process
    // A sequence: from there on older data of another node may have come over this rank's in a
    // file, and it has not succeeded to write its own again. 0: nowhere.
    std::atomic<std::uint64_t> unresolved;
};
static_assert(sizeof(RankHead) <= page);

// By file slot: 1 + the descriptor with which the process holds the file open for writing; 0: the
// process does not hold it open.
using DescriptorTable = std::atomic<std::int32_t>[file_slots];
static_assert(sizeof(DescriptorTable) % page == 0);

// The sizes of a store, and the byte offsets of its parts.
struct StoreLayout {
    std::uint32_t ranks;
    std::uint64_t record_slots, ring_bytes;

    static constexpr std::size_t files_offset() { return superblock_bytes; }
    static constexpr std::size_t background_offset() {
        return files_offset() + file_slots * sizeof(FileSlot);
    }
    static constexpr std::size_t ranks_offset() {
        return background_offset() + sizeof(DescriptorTable);
    }
    static constexpr std::size_t rank_overhead() { return page + sizeof(DescriptorTable); }
    std::size_t rank_bytes() const {
        return rank_overhead() + record_slots * sizeof(Record) + ring_bytes;
    }
    std::size_t head_offset(std::uint32_t rank) const {
        return ranks_offset() + rank * rank_bytes();
    }
    std::size_t descriptors_offset(std::uint32_t rank) const { return head_offset(rank) + page; }
    std::size_t records_offset(std::uint32_t rank) const {
        return head_offset(rank) + rank_overhead();
    }
    std::size_t data_offset(std::uint32_t rank) const {
        return records_offset(rank) + record_slots * sizeof(Record);
    }
    std::size_t bytes() const { return head_offset(ranks); }

    // The largest layout that fits: one record for every 8 KiB of data, 65536 at least.
    static StoreLayout fit(std::size_t bytes, std::uint32_t ranks);
};

}  // namespace assay::storage
