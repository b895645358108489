// How far a node is, in sequences: what of its ranks can still appear, what the file system has,
// what is still held.
#pragma once

#include <cstdint>

#include "storage/store/store.hpp"

namespace assay::storage {

struct Progress {
    std::uint64_t now;      // the node's clock: no record has a later sequence
    std::uint64_t horizon;  // every record older than this is published
    std::uint64_t drained;  // what every record older than this wrote is in the file system, and
                            // stays as it is
    std::uint64_t oldest;   // no record older than this is in a ring any more
    std::uint64_t failed;   // errno of a drain that gets no further
};

std::uint64_t horizon(const Store& store);
Progress progress(const Store& store);
// The oldest record in the rings of all ranks but one; none: the end of time.
std::uint64_t oldest_but_of(const Store& store, std::uint32_t rank);

}  // namespace assay::storage
