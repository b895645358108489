// Fragmentation: partly empty pages and the stacks that keep them.
#include "profile/analyse/fragmentation.hpp"

#include <doctest/doctest.h>

#include <numeric>

using namespace assay::heap;

namespace {
constexpr std::uint64_t page = 4096, base = 0x7f0000000000;
Block block(std::uint64_t size, std::uint32_t stack) { return {size, 1, 0, stack, 0, 0}; }
}  // namespace

TEST_CASE("a single block keeps the rest of its page; two blocks share the rest by size") {
    Blocks blocks;
    blocks[base] = block(96, 1);
    blocks[base + page] = block(300, 1);
    blocks[base + page + 1024] = block(100, 2);
    const Fragmentation fragmentation = measure_fragmentation(blocks, page);
    CHECK(fragmentation.pages == 2);
    CHECK(fragmentation.live == 496);
    REQUIRE(fragmentation.pins.size() == 2);
    CHECK(fragmentation.pins[0].stack == 1);
    CHECK(fragmentation.pins[0].bytes == (page - 96) + (page - 400) * 300 / 400);
    CHECK(fragmentation.pins[0].blocks == 2);
    CHECK(fragmentation.pins[1].bytes == (page - 400) * 100 / 400);
}

TEST_CASE("pages inside of a block are full, pages at its ends partly") {
    Blocks blocks;
    blocks[base + page / 2] = block(10 * page, 3);
    const Fragmentation fragmentation = measure_fragmentation(blocks, page);
    CHECK(fragmentation.pages == 11);
    CHECK(fragmentation.filled[9] == 9);
    CHECK(fragmentation.filled[5] == 2);
    CHECK(std::accumulate(fragmentation.filled.begin(), fragmentation.filled.end(),
                          std::uint64_t{0}) == 11);
    CHECK(fragmentation.pins[0].bytes == page);
}

TEST_CASE("blocks without an address count for no page") {
    Blocks blocks;
    blocks[block_id(0, 7)] = block(100, 1);
    CHECK(measure_fragmentation(blocks, page).pages == 0);
}
