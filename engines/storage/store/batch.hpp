// A batch: the data that the drain writes into the file system in one step.
//
// A batch takes the records of all ranks in the order of their sequences, up to the horizon: every
// record older than that is published, since a rank announces a write before it takes a sequence.
// Within a batch the newest write of a byte wins. Bytes that a superseded record covers or that a
// truncation cuts off are left out of older data, here and when failed writes are repeated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "storage/store/store.hpp"

namespace assay::storage {

// A range of a file that one record writes.
struct Piece {
    std::uint32_t file;        // slot
    std::uint32_t rank;        // of the node
    std::uint64_t begin, end;  // offsets in the file
    const char* data;          // null: another node has newer data, so nothing is written
    std::uint64_t sequence;
};

struct Batch {
    std::vector<Piece> pieces;  // by file and offset; disjoint
    // By rank: the number of the first record that is not in the batch.
    std::vector<std::uint64_t> end_record;
    // By file: the newest sequence of its records, including data that need not be written, because
    // newer data of another node or a truncation cover them.
    std::map<std::uint32_t, std::uint64_t> newest;
    bool takes_records = false;  // whether it has records, including those without pieces
};

// The next undrained records, of about `max_bytes` in all; a record is never split. It includes
// records of files with an error, which the drain does not write.
Batch next_batch(const Store& store, std::size_t max_bytes);

// The drained data of a file that must be written again after a failed write or fsync. The caller holds the drain's lock, so that they do not become durable and leave the
// rings meanwhile.
std::vector<Piece> pieces_to_repeat(const Store& store, std::uint32_t file);

}  // namespace assay::storage
