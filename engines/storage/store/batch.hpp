// Which bytes of which record go into the file system.
//
// A batch takes the records of all ranks in the order of their sequences, up to the horizon: every
// record older than that is published, since a rank announces a write before it takes a sequence.
// Within a batch the newest write of a byte wins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "storage/store/store.hpp"

namespace assay::storage {

// A range of a file that one record writes.
struct Piece {
    std::uint32_t file;        // slot
    std::uint32_t rank;        // of the node
    std::uint64_t begin, end;  // offsets in the file
    const char* data;
    std::uint64_t sequence;
};

struct Batch {
    std::vector<Piece> pieces;  // by file and offset; disjoint
    // By rank: the batch takes the records before this one.
    std::vector<std::uint64_t> end_record;
    std::uint64_t oldest = ~0ull;  // sequence; no record of the batch is older
    bool takes_records = false;    // also those of which nothing is left to write
};

// The next records that are not drained, of about `max_bytes` in all; a record is never split.
// Records of files with an error are taken, but are not written.
Batch next_batch(const Store& store, std::size_t max_bytes);

// All that a failed write has left out of one file, see FileSlot::failed_from. Data may not leave
// the rings meanwhile.
std::vector<Piece> failed_pieces(const Store& store, std::uint32_t file);

// Whether only the store has the record's data. Of a job that has ended.
bool is_pending(const Store& store, std::uint32_t rank, std::uint64_t position);

}  // namespace assay::storage
