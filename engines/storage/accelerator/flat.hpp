// Flattened MPI datatypes: lists of blocks of bytes.
//
// A datatype is decoded once (envelope and contents, MPI 4.0, 5.1.13). The result is cached as an
// attribute of the datatype and deleted with it. Blocks at a constant stride are one entry, so a
// vector of a million blocks is one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "storage/accelerator/mpi.hpp"

namespace assay::storage {

// `count` blocks of `length` bytes at begin, begin + stride, ...
struct Blocks {
    std::int64_t begin, length, stride, count;
};

// Blocks in order; a block that continues the last one is merged into it.
class BlockList {
public:
    void add(std::int64_t begin, std::int64_t length) { add(Blocks{begin, length, length, 1}); }
    void add(Blocks blocks);
    std::vector<Blocks> blocks;
};

// A flattened datatype. Offsets and lengths are in bytes.
struct FlatType {
    std::vector<Blocks> blocks;
    std::vector<std::int64_t> preceding_bytes;  // bytes in the blocks before each entry
    std::int64_t size = 0, extent = 0;
    bool contiguous = false;  // consecutive instances are one block from 0 on
    bool decoded = true;      // false: it has an unknown combiner, and `blocks` is not valid
};

// The flattened type, from the datatype's attribute if it was decoded before.
std::shared_ptr<const FlatType> flatten(MPI_Datatype type);

// Takes consecutive instances of `flat`, the first at offset `origin`, as one stream of bytes, and
// appends the blocks of the bytes [from, from + bytes) of the stream to `output`.
void append_blocks(const FlatType& flat, std::int64_t origin, std::int64_t from, std::int64_t bytes,
                   BlockList& output);
// The offset of byte `from` of the same stream.
std::int64_t offset_of(const FlatType& flat, std::int64_t origin, std::int64_t from);
// The number of bytes of the same stream that lie before offset `end`.
std::int64_t bytes_before(const FlatType& flat, std::int64_t origin, std::int64_t end);

}  // namespace assay::storage
