// Hashes of block addresses and numbers, for hash tables whose size is a power of two. Addresses
// share most of their low bits; block ids (format.hpp) of different threads share their numbers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "profile/trace/format.hpp"

namespace assay::heap {

inline std::size_t mix_bits(std::uint64_t value) {
    value *= 0x9e3779b97f4a7c15ull;
    return static_cast<std::size_t>(value ^ value >> 32);
}

// Blocks of one page, and ids with consecutive numbers, have adjacent hashes, since programs use
// them together.
struct BlockHash {
    std::size_t operator()(std::uint64_t block) const {
        constexpr int low_bits = 8;
        if (!is_block_id(block)) block >>= address_shift;
        return mix_bits(block >> low_bits) << low_bits | (block & ((1u << low_bits) - 1));
    }
};

struct NumberHash {
    std::size_t operator()(std::uint64_t number) const { return mix_bits(number); }
};

}  // namespace assay::heap
