// Stamps and verifies payloads, 64 bytes at a time.
#include "core/pattern.hpp"

#include <algorithm>
#include <cstring>

namespace assay {
namespace {

// Odd, so that all 2^64 words differ (Weyl sequence; the golden ratio in 64 bits).
constexpr std::uint64_t golden_gamma = 0x9E3779B97F4A7C15;

// Finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a bijection that spreads every bit.
std::uint64_t mix_bits(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
}

// 64 bytes, processed together. The compiler makes a clone of each function below for each
// instruction set; the loader chooses one.
using Block = std::uint64_t __attribute__((vector_size(64), aligned(8), may_alias));
constexpr std::size_t block_bytes = sizeof(Block);

#define ASSAY_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))

// Both functions process whole 64-byte blocks; their callers handle the rest.
ASSAY_CLONES void stamp_blocks(std::byte* data, std::size_t bytes, std::uint64_t key) {
    Block expected = Block{0, 1, 2, 3, 4, 5, 6, 7} * golden_gamma + key;
    for (std::size_t offset = 0; offset < bytes;
         offset += block_bytes, expected += 8 * golden_gamma)
        *reinterpret_cast<Block*>(data + offset) = expected;
}

ASSAY_CLONES std::uint64_t differing_bits(const std::byte* data, std::size_t bytes,
                                          std::uint64_t key) {
    Block expected = Block{0, 1, 2, 3, 4, 5, 6, 7} * golden_gamma + key;
    Block differing{};
    for (std::size_t offset = 0; offset < bytes;
         offset += block_bytes, expected += 8 * golden_gamma)
        differing |= *reinterpret_cast<const Block*>(data + offset) ^ expected;
    std::uint64_t any = 0;
    for (int i = 0; i < 8; ++i) any |= differing[i];
    return any;
}

std::optional<std::size_t> find_wrong_byte(const std::byte* data, std::size_t begin,
                                           std::size_t end, std::uint64_t key) {
    for (std::size_t offset = begin; offset < end; offset += 8) {
        const std::uint64_t expected = stamped_word(key, offset);
        std::uint64_t observed = expected;
        std::memcpy(&observed, data + offset, std::min<std::size_t>(8, end - offset));
        if (observed != expected)
            return offset + static_cast<std::size_t>(__builtin_ctzll(observed ^ expected)) / 8;
    }
    return std::nullopt;
}

}  // namespace

std::uint64_t stamp_key(int source, int destination, std::uint64_t message) {
    const auto pair =
        static_cast<std::uint64_t>(source) << 32 | static_cast<std::uint32_t>(destination);
    return mix_bits(mix_bits(pair) + message * golden_gamma);
}

std::uint64_t stamped_word(std::uint64_t key, std::size_t offset) {
    return key + offset / 8 * golden_gamma;
}

void stamp(std::byte* data, std::size_t bytes, std::uint64_t key) {
    const std::size_t blocks_end = bytes / block_bytes * block_bytes;
    stamp_blocks(data, blocks_end, key);
    for (std::size_t offset = blocks_end; offset < bytes; offset += 8) {
        const std::uint64_t word = stamped_word(key, offset);
        std::memcpy(data + offset, &word, std::min<std::size_t>(8, bytes - offset));
    }
}

std::optional<std::size_t> first_wrong_byte(const std::byte* data, std::size_t bytes,
                                            std::uint64_t key) {
    const std::size_t blocks_end = bytes / block_bytes * block_bytes;
    if (differing_bits(data, blocks_end, key)) return find_wrong_byte(data, 0, blocks_end, key);
    return find_wrong_byte(data, blocks_end, bytes, key);
}

void poison(std::byte* data, std::size_t bytes, std::uint64_t key) {
    if (bytes < 8) stamp(data, bytes, ~key);
}

}  // namespace assay
