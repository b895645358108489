// Where blocks stand in a hash table whose size is a power of two: their addresses have most low
// bits in common, and their names (format.hpp) the numbers of each thread's blocks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "profile/trace/format.hpp"

namespace assay::heap {

inline std::size_t spread(std::uint64_t value) {
    value *= 0x9e3779b97f4a7c15ull;
    return static_cast<std::size_t>(value ^ value >> 32);
}

// What lies on one page, or was named in a row, stays together: programs come back to it.
struct BlockHash {
    std::size_t operator()(std::uint64_t block) const {
        constexpr int together = 8;
        if (!is_named(block)) block >>= place_shift;
        return spread(block >> together) << together | (block & ((1u << together) - 1));
    }
};

struct NumberHash {
    std::size_t operator()(std::uint64_t number) const { return spread(number); }
};

}  // namespace assay::heap
