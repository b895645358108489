// When a silent peer is taken for lost, by planted delays.
#include "transport/direct/patience.hpp"

#include <doctest/doctest.h>

using namespace assay;
using namespace assay::direct;

namespace {

constexpr Nanoseconds ms = 1'000'000, s = 1000 * ms;

}  // namespace

TEST_CASE("a delay fades, and a larger one replaces it") {
    Delay delay;
    CHECK(delay.at(5 * s) == 0);
    delay.note(80 * ms, 1 * s);
    CHECK(delay.at(1 * s) == 80 * ms);
    CHECK(delay.at(3 * s) == 40 * ms);
    delay.note(30 * ms, 3 * s);  // smaller than what is left
    CHECK(delay.at(3 * s) == 40 * ms);
    delay.note(-20 * ms, 3 * s);
    CHECK(delay.at(5 * s) == 20 * ms);
    delay.note(90 * ms, 5 * s);
    CHECK(delay.at(5 * s) == 90 * ms);
    CHECK(delay.at(60 * s) < 1 * ms);
}

TEST_CASE("on a quiet machine the limit holds; where ranks are late, it grows, but not for ever") {
    CHECK(patience(150 * ms, 0, 0) == 150 * ms);
    CHECK(patience(150 * ms, 1 * ms, 2 * ms) < 160 * ms);
    // A peer that was silent for 200 ms and then spoke may be silent for that long again.
    CHECK(patience(150 * ms, 0, 200 * ms) > 600 * ms);
    CHECK(patience(150 * ms, 200 * ms, 0) == patience(150 * ms, 0, 200 * ms));
    CHECK(patience(150 * ms, 0, 100 * s) == 3 * s);
}
