// Tests of read_moment(): a thread may lose its processor between its readings of the two clocks.
#include "profile/stack/moment.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <random>

using namespace assay::stack;

TEST_CASE("a reading counts that no interruption has torn apart") {
    constexpr std::uint64_t seed = 7;
    std::mt19937_64 random(seed);
    for (int run = 0; run < 1000; ++run) {
        // One time behind both clocks, of which a tick is 2 ns. Of 16 readings up to 12 are torn.
        std::uint64_t time = 1'000'000;
        int interruptions = static_cast<int>(random() % 13);
        const auto pass = [&] {
            time += 20;
            if (interruptions == 0 || random() % 2 == 0) return;
            --interruptions;
            time += 1'000'000;
        };
        const Moment moment = read_moment(
            [&] {
                pass();
                return time / 2;
            },
            [&] {
                pass();
                return time;
            });
        CHECK(std::abs(static_cast<long>(moment.ns) - 2 * static_cast<long>(moment.ticks)) <= 40);
    }
}

TEST_CASE("both clocks of the machine go on") {
    const Moment begin = read_moment();
    while (raw_time_ns() - begin.ns < 1'000'000) {
    }
    const Moment end = read_moment();
    CHECK(end.ticks > begin.ticks);
    CHECK(end.ns - begin.ns >= 1'000'000);
}
