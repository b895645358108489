// A node's progress, as sequences: what can still appear, what is drained, what is still held.
#pragma once

#include <cstdint>

#include "storage/store/store.hpp"

namespace assay::storage {

struct Progress {
    std::uint64_t now;      // the node's clock: no record has a later sequence
    std::uint64_t horizon;  // every record older than this is published
    std::uint64_t drained;  // the data of every record older than this are in the file system, and
                            // are not rewritten there
    std::uint64_t oldest;   // no record older than this is left in a ring
    std::uint64_t failed;   // errno of a shared file that cannot be written; 0: none
};

std::uint64_t horizon(const Store& store);
// The data of every record older than this were drained, apart from files with an error.
std::uint64_t drained_before(const Store& store);
// The file system has the data of every record of the file that is older than this.
std::uint64_t written_before(const Store& store, std::uint32_t file);
// Whether the file system was handed all data of the file. No rank may have the file open.
bool is_written(const Store& store, std::uint32_t file);
// What was not handed to the file system yet, of a store in use.
struct PendingData {
    std::uint64_t bytes = 0;
    std::uint32_t files = 0;
};
PendingData pending_data(const Store& store);
Progress progress(const Store& store);

// Moves RankHead::drained of all ranks to the end of a batch, in one step for whoever looks after a
// crash: a batch is drained as a whole or not at all, because of two ranks' writes to the same
// bytes the older one must not be written again alone. Call it under the drain's lock, with
// `drained_next` set.
void commit_batch(const Store& store);
// Completes what a process that was killed had committed.
void complete_commit(const Store& store);

// The sequence of the oldest record in the rings of all other ranks; 2^64 - 1: there is none.
std::uint64_t oldest_except(const Store& store, std::uint32_t rank);

}  // namespace assay::storage
