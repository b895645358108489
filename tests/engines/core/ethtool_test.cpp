// Tests of the fastest link mode: bit masks of link modes as adapters report them.
#include "core/ethtool.hpp"

#include <doctest/doctest.h>
#include <linux/ethtool.h>

#include <vector>

using assay::fastest_of;

namespace {

std::vector<std::uint32_t> mask(std::initializer_list<unsigned> bits) {
    std::vector<std::uint32_t> words(4);
    for (const unsigned bit : bits) words[bit / 32] |= 1U << (bit % 32);
    return words;
}

}  // namespace

TEST_CASE("the rate of the fastest link mode in a mask, in bit/s") {
    CHECK_FALSE(fastest_of({}));
    CHECK_FALSE(fastest_of(mask({})));
    CHECK_FALSE(fastest_of(mask({ETHTOOL_LINK_MODE_TP_BIT, ETHTOOL_LINK_MODE_Autoneg_BIT})));
    CHECK(fastest_of(mask(
              {ETHTOOL_LINK_MODE_1000baseT_Full_BIT, ETHTOOL_LINK_MODE_100baseT_Full_BIT})) == 1e9);
    CHECK(fastest_of(mask({ETHTOOL_LINK_MODE_1000baseT_Full_BIT,
                           ETHTOOL_LINK_MODE_10000baseSR_Full_BIT})) == 10e9);
    CHECK(fastest_of(mask({ETHTOOL_LINK_MODE_100000baseDR_Full_BIT})) == 100e9);
    CHECK(fastest_of(mask({ETHTOOL_LINK_MODE_10baseT_Half_BIT})) == 10e6);
}

TEST_CASE("bits beyond a short mask are not read") {
    const std::vector<std::uint32_t> short_mask = {1U << ETHTOOL_LINK_MODE_10000baseT_Full_BIT};
    CHECK(fastest_of(short_mask) == 10e9);
    CHECK_FALSE(fastest_of(std::vector<std::uint32_t>{0}));
}

TEST_CASE("an interface that does not exist has no link modes") {
    CHECK_FALSE(assay::fastest_link_mode("none-such"));
    CHECK_FALSE(assay::fastest_link_mode("a-name-that-is-longer-than-any-interface"));
}
