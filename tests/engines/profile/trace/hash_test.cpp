// Hash tables of blocks stay small, whatever addresses or ids have in common.
#include <doctest/doctest.h>
#include <tsl/robin_map.h>

#include "profile/trace/hash.hpp"

using namespace assay::heap;

namespace {

template <class Hash>
std::size_t buckets_of(std::size_t blocks, auto block) {
    tsl::robin_map<std::uint64_t, int, Hash> table;
    for (std::size_t k = 0; k < blocks; ++k) table[block(k)] = 1;
    CHECK(table.size() == blocks);
    return table.bucket_count();
}

}  // namespace

TEST_CASE("blocks of any stride, and ids of several threads, fill a table evenly") {
    constexpr std::size_t blocks = 100'000, most = 512 << 10;
    for (int shift = 4; shift <= 21; ++shift)
        CHECK(buckets_of<BlockHash>(blocks, [=](std::size_t k) {
                  return 0x7f0000000010 + (std::uint64_t{k} << shift);
              }) <= most);
    for (const std::size_t threads : {1, 3, 8, 64})
        CHECK(buckets_of<BlockHash>(blocks, [=](std::size_t k) {
                  return block_id(static_cast<std::uint32_t>(k % threads), k / threads);
              }) <= most);
    CHECK(buckets_of<NumberHash>(blocks, [](std::size_t k) { return k << 9; }) <= most);
}
