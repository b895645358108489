// Tests of the time after which a silent peer counts as lost. It depends on the delays that were
// measured.
#include "transport/direct/silence_limit.hpp"

#include <doctest/doctest.h>

using namespace assay;
using namespace assay::direct;

namespace {

constexpr Nanoseconds ms = 1'000'000, s = 1000 * ms;

}  // namespace

TEST_CASE("a recorded delay halves every 2 s, and a larger one replaces it") {
    Delay delay;
    CHECK(delay.value_at(5 * s) == 0);
    delay.record(80 * ms, 1 * s);
    CHECK(delay.value_at(1 * s) == 80 * ms);
    CHECK(delay.value_at(3 * s) == 40 * ms);
    delay.record(30 * ms, 3 * s);  // smaller than what is left
    CHECK(delay.value_at(3 * s) == 40 * ms);
    delay.record(-20 * ms, 3 * s);
    CHECK(delay.value_at(5 * s) == 20 * ms);
    delay.record(90 * ms, 5 * s);
    CHECK(delay.value_at(5 * s) == 90 * ms);
    CHECK(delay.value_at(60 * s) < 1 * ms);
}

TEST_CASE("the limit grows with measured delays, up to 3 s") {
    CHECK(silence_limit(150 * ms, 0, 0) == 150 * ms);
    CHECK(silence_limit(150 * ms, 1 * ms, 2 * ms) < 160 * ms);
    // A peer that was silent for 200 ms and then spoke may be silent for that long again.
    CHECK(silence_limit(150 * ms, 0, 200 * ms) > 600 * ms);
    CHECK(silence_limit(150 * ms, 200 * ms, 0) == silence_limit(150 * ms, 0, 200 * ms));
    CHECK(silence_limit(150 * ms, 0, 100 * s) == 3 * s);
}
