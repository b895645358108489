// Tests of the pace of a UDP stream: it does not drift, and it catches up at a bounded rate.
#include "node/udp/pace.hpp"

#include <doctest/doctest.h>

using namespace assay;
using assay::node::batch_size;
using assay::node::Pace;

TEST_CASE("a stream without delays keeps the absolute schedule: errors do not accumulate") {
    const double rate = 10551.966292134832;  // of the COBALT test
    Pace pace(rate, 211'039, 7, 0);
    Nanoseconds time = 0;
    while (!pace.done()) {
        time = pace.due() + 900;  // always a little late
        pace.advance(time, pace.batch());
    }
    CHECK(pace.sent() == 211'039);
    CHECK(seconds(time) == doctest::Approx(20.0).epsilon(0.0001));
}

TEST_CASE("streams start with phases spread over the time of a batch") {
    const Pace first(1000, 100, 10, 0), second(1000, 100, 10, 0.5);
    CHECK(first.due() == 0);
    CHECK(second.due() == 5'000'000);
}

TEST_CASE("after a pause it catches up at 1.25 times the rate") {
    Pace pace(1000, 1'000'000, 1, 0);
    const Nanoseconds pause = 1'000'000'000;
    Nanoseconds time = pause, last = 0;
    int caught_up_after = 0;
    for (int i = 0; i < 6000; ++i) {
        if (last != 0) {
            CHECK(time - last >= 800'000);
            if (caught_up_after == 0 && pace.due() == pace.scheduled()) caught_up_after = i;
        }
        pace.advance(time, 1);
        last = time;
        time = std::max(time, pace.due());
    }
    CHECK(caught_up_after > 4900);  // 1000 messages behind, 0.2 of a message gained with each
    CHECK(caught_up_after < 5100);
}

TEST_CASE("the last batch is smaller, and a partly sent batch continues") {
    Pace pace(1000, 10, 7, 0);
    CHECK(pace.batch() == 7);
    pace.advance(0, 3);
    CHECK(pace.batch() == 7);
    pace.advance(0, 7);
    CHECK(pace.done());
}

TEST_CASE("a batch is at most a millisecond, and the kernel's limit") {
    CHECK(batch_size(10552, 8900) == 7);     // 64 kB
    CHECK(batch_size(200'000, 1472) == 44);  // 64 kB
    CHECK(batch_size(10e6, 64) == 256);
    CHECK(batch_size(900, 8900) == 1);  // slow: none waits for others
    CHECK(batch_size(0.1, 65000) == 1);
}
