// Datatypes as lists of blocks of bytes.
//
// A datatype is taken apart once (envelope and contents, MPI 4.0, 5.1.13) and the result stays with
// it as an attribute, which goes when the datatype is freed. Blocks at a constant stride are one
// entry, so a vector of a million is one.
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

// Blocks appended one after the other, joined where they continue each other.
class BlockList {
public:
    void add(std::int64_t begin, std::int64_t length) { add(Blocks{begin, length, length, 1}); }
    void add(Blocks blocks);
    std::vector<Blocks> blocks;
};

struct Flat {
    std::vector<Blocks> blocks;
    std::vector<std::int64_t> before;  // bytes in the blocks before each entry
    std::int64_t size = 0, extent = 0;
    bool contiguous = false;  // instances one after the other are one block, from 0 on
    bool known = true;        // false: a datatype that cannot be taken apart
};

std::shared_ptr<const Flat> flatten(MPI_Datatype type);

// Walks bytes [from, from + bytes) of instances of `flat` laid one after the other at `origin`, in
// their order.
void walk(const Flat& flat, std::int64_t origin, std::int64_t from, std::int64_t bytes,
          BlockList& into);
// The offset of byte `from` in the same sense.
std::int64_t offset_of(const Flat& flat, std::int64_t origin, std::int64_t from);
// How many bytes of the instances lie before `end`, seen from `origin`.
std::int64_t bytes_before(const Flat& flat, std::int64_t origin, std::int64_t end);

}  // namespace assay::storage
