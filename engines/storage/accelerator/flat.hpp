// Flattened MPI datatypes: the blocks of bytes of which they consist.
//
// A datatype is decoded once (envelope and contents, MPI 4.0, 5.1.13). The result is cached as an
// attribute of the datatype and deleted with it. What repeats at a constant stride is one part, so
// a vector of a million blocks is one, and an array of any size has one for each dimension. Blocks
// are listed for the bytes of a transfer only.
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

struct FlatType;

// Blocks, or with `inner` the data of another type at begin, begin + stride, ...; then `length` is
// the size of that type.
struct FlatPart : Blocks {
    std::shared_ptr<const FlatType> inner;
};

// A flattened datatype. Offsets and lengths are in bytes.
struct FlatType {
    std::vector<FlatPart> parts;
    std::vector<std::int64_t> preceding_bytes;  // bytes in the parts before each one
    std::int64_t size = 0, extent = 0;
    bool contiguous = false;  // consecutive instances are one block from 0 on
    bool decoded = true;      // false: it has an unknown combiner, and no parts
};

// The flattened type, from the datatype's attribute if it was decoded before.
std::shared_ptr<const FlatType> flatten(MPI_Datatype type);

// Takes consecutive instances of `flat`, the first at offset `origin`, as one stream of bytes, and
// appends the blocks of the bytes [from, from + bytes) of the stream to `output`.
void append_blocks(const FlatType& flat, std::int64_t origin, std::int64_t from, std::int64_t bytes,
                   BlockList& output);
// The offset of byte `from` of the same stream.
std::int64_t offset_of(const FlatType& flat, std::int64_t origin, std::int64_t from);
// The same, but false if it is negative or above 2^63 - 1.
bool find_offset(const FlatType& flat, std::int64_t origin, std::int64_t from,
                 std::int64_t& offset);
// Whether a file can have these bytes.
bool fits_in_file(const FlatType& flat, std::int64_t origin, std::int64_t from, std::int64_t bytes);
// The number of bytes of the same stream that lie before offset `end`.
std::int64_t bytes_before(const FlatType& flat, std::int64_t origin, std::int64_t end);

// Copies the bytes [from, from + bytes) of the instances at `buffer` to consecutive memory, or
// back.
void pack(const FlatType& flat, const char* buffer, std::int64_t from, std::int64_t bytes,
          char* packed);
void unpack(const FlatType& flat, char* buffer, std::int64_t from, std::int64_t bytes,
            const char* packed);

}  // namespace assay::storage
