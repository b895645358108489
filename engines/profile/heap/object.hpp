// Where a loaded object lies, and whether its loader has finished with it.
#pragma once

#include <link.h>

#include <cstdint>

namespace assay::heap {

struct Range {
    std::uint64_t begin = 0, end = 0;
    bool contains(std::uint64_t address) const { return address >= begin && address < end; }
};

Range range_of(const dl_phdr_info& object);
// What the loader has made read-only once all was bound; whole pages, as it reckons them. Empty
// where it seals nothing.
Range sealed_in(const dl_phdr_info& object);
// Before, none of its functions can be called. Of one in which nothing is sealed it cannot be told.
bool is_relocated(const dl_phdr_info& object);

}  // namespace assay::heap
