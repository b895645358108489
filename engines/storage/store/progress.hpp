// A node's progress, as sequences: which records are published, which are drained, and which are
// still in the rings. Other nodes ask for it.
#pragma once

#include <atomic>
#include <cstdint>

#include "storage/store/store.hpp"

namespace assay::storage {

struct Progress {
    std::uint64_t now;         // the node's clock: no record has a later sequence
    std::uint64_t horizon;     // every record older than this is published
    std::uint64_t drained;     // the data of every record older than this are in the file system
    std::uint64_t synced;      // of files that other nodes use too, data older than this are on the
                               // medium, so this node does not write them again
    std::uint64_t durable;     // as `synced`, and no older data of other nodes came over them
    std::uint64_t oldest;      // no record older than this is left in a ring
    std::uint64_t failed;      // errno of a shared file that cannot be written; 0: none
    std::uint64_t retries;     // how often the node has repeated the failed writes of all files
    std::uint64_t unresolved;  // 1: a rank has given up to resolve conflicts (RankHead::unresolved)
};

// Every record older than this sequence is published.
std::uint64_t horizon(const Store& store);
// The data of every record older than this were drained, apart from files with an error.
std::uint64_t drained_before(const Store& store);
// The file system has the data of every record of the file that is older than this.
std::uint64_t written_before(const Store& store, std::uint32_t file);

struct StoredData {
    std::uint64_t bytes = 0;
    std::uint32_t files = 0;
};
// All data in a store, of files that are not deleted.
StoredData stored_data(const Store& store);
// The bytes that were not written to the file system yet, and the files that have such bytes, or
// bytes that are not on the medium.
StoredData pending_data(const Store& store);
Progress progress(const Store& store);

// FileSlot::end: raises it to that of a write that is published; lowers it to the end of the data
// that are not drained, because another node may have made the file shorter.
void extend_end(FileSlot& file, std::uint64_t end);
void lower_end(const Store& store, std::uint32_t file);
// Sets the value to `least` if it is lower; other processes may raise it too.
void raise_to(std::atomic<std::uint64_t>& value, std::uint64_t least);

// Moves RankHead::drained of all ranks to the end of a batch, atomically with respect to a crash.
// If two ranks of a batch have written the same bytes, the older write must not be written again
// alone, so a batch counts as drained as a whole or not at all. The caller holds the drain's lock
// and has set RankHead::drained_next.
void commit_batch(const Store& store);
// Completes the commit_batch() of a process that was killed.
void complete_commit(const Store& store);

// The sequence of the oldest record in the rings of all other ranks; 2^64 - 1: there is none.
std::uint64_t oldest_except(const Store& store, std::uint32_t rank);

}  // namespace assay::storage
