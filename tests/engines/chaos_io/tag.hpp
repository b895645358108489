// The data that a chaos run writes. Each aligned 8-byte word encodes the file, the writing rank,
// the operation and the word's index in the file. tests/python/accelerator/chaos_bytes.py decodes
// them.
#pragma once

#include <cstdint>

namespace chaos {

constexpr std::uint64_t magic = 0xA5;

// A bijection (the finalizer of splitmix64), so that a word can be decoded and its bytes differ.
inline std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

// The writer of a word.
struct Tag {
    int file, rank, operation;

    std::uint64_t word(std::uint64_t index) const {
        return mix(magic << 56 | static_cast<std::uint64_t>(file) << 52 |
                   static_cast<std::uint64_t>(rank) << 48 |
                   static_cast<std::uint64_t>(operation) << 32 | (index & 0xffffffff));
    }
    // Fills `to` with the bytes of the file from `offset` on.
    void fill(std::uint64_t offset, std::uint64_t bytes, char* to) const {
        std::uint64_t value = word(offset / 8);
        for (std::uint64_t k = offset; k < offset + bytes; ++k) {
            if (k % 8 == 0) value = word(k / 8);
            *to++ = static_cast<char>(value >> (8 * (k % 8)));
        }
    }
};

}  // namespace chaos
