// Pages and who keeps them.
#include "profile/analyse/pages.hpp"

#include <doctest/doctest.h>

#include <numeric>

using namespace assay::heap;

namespace {
constexpr std::uint64_t page = 4096, base = 0x7f0000000000;
Block block(std::uint64_t size, std::uint32_t stack) { return {size, 1, 0, stack, 0, 0}; }
}  // namespace

TEST_CASE("a lone block keeps the rest of its page, and two share it by their sizes") {
    Blocks blocks;
    blocks[base] = block(96, 1);
    blocks[base + page] = block(300, 1);
    blocks[base + page + 1024] = block(100, 2);
    const Pages found = look_at_pages(blocks, page);
    CHECK(found.pages == 2);
    CHECK(found.live == 496);
    REQUIRE(found.pins.size() == 2);
    CHECK(found.pins[0].stack == 1);
    CHECK(found.pins[0].bytes == (page - 96) + (page - 400) * 300 / 400);
    CHECK(found.pins[0].blocks == 2);
    CHECK(found.pins[1].bytes == (page - 400) * 100 / 400);
}

TEST_CASE("pages inside of a block are full, those at its ends as far as it goes") {
    Blocks blocks;
    blocks[base + page / 2] = block(10 * page, 3);
    const Pages found = look_at_pages(blocks, page);
    CHECK(found.pages == 11);
    CHECK(found.filled[9] == 9);
    CHECK(found.filled[5] == 2);
    CHECK(std::accumulate(found.filled.begin(), found.filled.end(), std::uint64_t{0}) == 11);
    CHECK(found.pins[0].bytes == page);
}

TEST_CASE("blocks that have a name and no address are on no page") {
    Blocks blocks;
    blocks[name_block(0, 7)] = block(100, 1);
    CHECK(look_at_pages(blocks, page).pages == 0);
}
