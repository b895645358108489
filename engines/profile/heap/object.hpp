// The address range of a loaded object, and whether the loader has finished relocating it.
#pragma once

#include <link.h>

#include <cstdint>

namespace assay::heap {

struct Range {
    std::uint64_t begin = 0, end = 0;
    bool contains(std::uint64_t address) const { return address >= begin && address < end; }
};

// The range from the lowest to the highest address of the object's segments (PT_LOAD).
Range object_range(const dl_phdr_info& object);
// The pages that the loader makes read-only after relocation (PT_GNU_RELRO), rounded like the
// loader does; empty if there are none.
Range relro_range(const dl_phdr_info& object);
// Whether the loader has relocated the object, i.e. has made its RELRO pages read-only. Before
// that, none of its functions can be called. True for an object without RELRO, for which it is
// unknown.
bool is_relocated(const dl_phdr_info& object);

}  // namespace assay::heap
