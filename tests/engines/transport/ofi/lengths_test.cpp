// Tests of the lengths of messages: every window of every pair of ranks finds its receives.
#include "transport/ofi/lengths.hpp"

#include <doctest/doctest.h>

#include "transport/ofi/greeting.hpp"

using namespace assay::ofi;

namespace {

constexpr std::size_t no_limit = 1U << 30;

Lengths over_network(int ranks, std::size_t receives = no_limit, std::size_t bytes = no_limit) {
    return Lengths::of({bytes, receives, true, ranks});
}

std::size_t receives_of(const Lengths& lengths, int ranks) {
    return static_cast<std::size_t>(ranks - 1) * lengths.receives_per_peer();
}

}  // namespace

TEST_CASE("messages are shorter where ranks are many, and their receives stay in bounds") {
    CHECK(over_network(2).largest == Lengths::longest);
    std::size_t before = Lengths::longest;
    for (int ranks = 1; ranks <= 1024; ++ranks) {
        CAPTURE(ranks);
        const Lengths lengths = over_network(ranks);
        CHECK(lengths.largest <= before);
        CHECK(lengths.largest >= Lengths::shortest);
        if (lengths.largest > Lengths::shortest)
            CHECK(receives_of(lengths, ranks) * lengths.largest <= Lengths::max_memory);
        before = lengths.largest;
    }
    CHECK(before == Lengths::shortest);
}

TEST_CASE("a provider with few receives gets no larger window than it has receives") {
    for (const std::size_t most : {256U, 1024U, 2048U})
        for (int ranks = 2; receives_of({0, 0}, ranks) <= most; ++ranks) {
            CAPTURE(most);
            CAPTURE(ranks);
            CHECK(receives_of(over_network(ranks, most), ranks) <= most);
        }
    CHECK(over_network(20, 256).largest < over_network(20).largest);
}

TEST_CASE("messages are not longer than the provider's") {
    for (const std::size_t most : {1500UL, 65000UL, 100'000UL})
        for (const int ranks : {2, 8, 500})
            CHECK(over_network(ranks, no_limit, most).largest <= most);
}

TEST_CASE("in the memory of one host messages are not shortened") {
    const Lengths lengths = Lengths::of({no_limit, no_limit, false, 2});
    CHECK(lengths.largest == Lengths::longest);
    CHECK(lengths.halvings == 0);
}

TEST_CASE("two ranks with other limits choose the same lengths, which both can receive") {
    for (const std::size_t mine :
         {16U << 10, 20'000U, 32U << 10, 64U << 10, 128U << 10, 256U << 10})
        for (const std::size_t theirs : {16U << 10, 20'000U, 40'000U, 64U << 10, 256U << 10}) {
            CAPTURE(mine);
            CAPTURE(theirs);
            const Lengths a = over_network(2, no_limit, mine),
                          b = over_network(2, no_limit, theirs);
            const Lengths ab = a.common(b.largest), ba = b.common(a.largest);
            CHECK(ab.largest == ba.largest);
            CHECK(ab.halvings == ba.halvings);
            CHECK(ab.largest <= std::min(a.largest, b.largest));
            CHECK(ab.receives_per_peer() <= std::min(a.receives_per_peer(), b.receives_per_peer()));
        }
}

TEST_CASE("a greeting is read as it was written, and a shorter one has no address") {
    const Greeting written{65536, {1, 2, 0, 3}};
    const Greeting read = Greeting::read(written.bytes());
    CHECK(read.largest == written.largest);
    CHECK(read.address == written.address);
    for (std::size_t bytes = 0; bytes <= 4; ++bytes)
        CHECK(Greeting::read(std::vector<unsigned char>(bytes, 7)).address.empty());
}
