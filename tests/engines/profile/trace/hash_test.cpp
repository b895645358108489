// Hash tables of blocks stay small, even where addresses or ids share many bits.
#include <doctest/doctest.h>
#include <tsl/robin_map.h>

#include "profile/trace/hash.hpp"

using namespace assay::heap;

namespace {

template <class Hash>
std::size_t buckets_of(std::size_t blocks, auto key) {
    tsl::robin_map<std::uint64_t, int, Hash> table;
    for (std::size_t k = 0; k < blocks; ++k) table[key(k)] = 1;
    CHECK(table.size() == blocks);
    return table.bucket_count();
}

}  // namespace

TEST_CASE("blocks of any stride, and ids of several threads, fill a table evenly") {
    constexpr std::size_t blocks = 100'000, max_buckets = 512 << 10;
    for (int shift = 4; shift <= 21; ++shift)
        CHECK(buckets_of<BlockHash>(blocks, [=](std::size_t k) {
                  return 0x7f0000000010 + (std::uint64_t{k} << shift);
              }) <= max_buckets);
    for (const std::size_t threads : {1, 3, 8, 64})
        CHECK(buckets_of<BlockHash>(blocks, [=](std::size_t k) {
                  return block_id(static_cast<std::uint32_t>(k % threads), k / threads);
              }) <= max_buckets);
    CHECK(buckets_of<NumberHash>(blocks, [](std::size_t k) { return k << 9; }) <= max_buckets);
}
