// The address range of a loaded object, and whether the loader has finished relocating it.
#pragma once

#include <link.h>

#include <cstdint>

namespace assay::heap {

struct Range {
    std::uint64_t begin = 0, end = 0;
    bool contains(std::uint64_t address) const { return address >= begin && address < end; }
};

// From the lowest to the highest address of the object's segments (PT_LOAD).
Range range_of(const dl_phdr_info& object);
// The pages that the loader makes read-only after relocation (PT_GNU_RELRO), rounded as it does;
// empty if there are none.
Range relro_of(const dl_phdr_info& object);
// Whether the loader has relocated the object: it has made the RELRO pages read-only. Before that
// none of the object's functions can be called. True for an object without RELRO, where it is
// unknown.
bool is_relocated(const dl_phdr_info& object);

}  // namespace assay::heap
