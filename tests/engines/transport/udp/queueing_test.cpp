// Tests of queueing delays and of the fair share with planted clocks, paths and rates.
#include "transport/udp/queueing.hpp"

#include <doctest/doctest.h>

#include <initializer_list>

using namespace assay;
using namespace assay::udp;

TEST_CASE("the delay in queues is known whatever the clocks of both sides say") {
    for (const Nanoseconds offset :
         std::initializer_list<Nanoseconds>{-5'000'000'000'000, 0, 1'700'000'000'000'000'000}) {
        CAPTURE(offset);
        QueueingDelay delay;
        Nanoseconds time = 0;
        const auto arrive = [&](Nanoseconds queued) {
            time += 1'000'000;
            delay.on_arrival(time, time + 100'000 + queued + offset, time);
        };
        arrive(0);
        CHECK(delay.latest() == 0);
        CHECK(delay.fullness() == 0);
        arrive(8'000'000);
        CHECK(delay.latest() == 8'000'000);
        CHECK(delay.fullness() == 0);  // it has never overflowed
        delay.on_loss();
        arrive(4'000'000);
        CHECK(delay.fullness() == doctest::Approx(0.5));
        arrive(9'000'000);
        CHECK(delay.fullness() == 1);
    }
    // A loss without a queue says nothing about one.
    QueueingDelay lossy;
    lossy.on_arrival(0, 100'000, 0);
    lossy.on_arrival(1'000'000, 1'200'000, 1'000'000);
    lossy.on_loss();
    CHECK(lossy.fullness() == 0);
}

TEST_CASE("a queue that is never empty does not pass for the path") {
    // The clock of the other side drifts by 20 ppm, and is set once by an hour.
    constexpr Nanoseconds path = 100'000, standing = 30'000'000, hour = 3'600'000'000'000;
    for (const Nanoseconds back : {Nanoseconds{0}, standing})
        for (const Nanoseconds set : {-hour, Nanoseconds{0}, hour}) {
            CAPTURE(back);
            CAPTURE(set);
            QueueingDelay delay;
            for (Nanoseconds time = 0; time < 120'000'000'000; time += 10'000'000) {
                const bool is_queued = time > 0;
                const Nanoseconds offset = time / 50'000 + (time < 60'000'000'000 ? 0 : set);
                const Nanoseconds arrived = time + path + (is_queued ? standing : 0);
                const Nanoseconds received = arrived + 2'000'000 + path + (is_queued ? back : 0);
                delay.on_arrival(time, arrived + offset, time);
                delay.on_answer(arrived + 2'000'000 + offset, received, time);
                if (time % 1'000'000'000 != 0) continue;
                const Nanoseconds mean = delay.take_mean();
                if (!is_queued) continue;
                // At least half of what waits in both directions, and at most all of it. A clock
                // that is set back hides it until older durations count no more.
                CHECK(mean <= standing + back);
                const Nanoseconds since = time - 60'000'000'000;
                if (set < 0 && since >= 0 && since < 21'000'000'000) continue;
                CHECK(mean >= (standing + back) / 2 * 95 / 100);
            }
        }
}

TEST_CASE("where a clock or a route changes, the fastest datagram is one of the last seconds") {
    QueueingDelay delay;
    for (Nanoseconds time = 0; time < 60'000'000'000; time += 100'000'000)
        delay.on_arrival(time, time + (time < 20'000'000'000 ? 100'000 : 5'000'000), time);
    CHECK(delay.latest() == 0);
}

TEST_CASE("the share is what the link carries in a limited time, divided among the peers") {
    // 7.5 MB/s for 20 s, then nothing, as a rank that waits; the peers are 7.
    FairShare share;
    const std::size_t at_first = share.bytes();
    CHECK(at_first > 0);
    std::uint64_t delivered = 0;
    Nanoseconds time = 1'000'000'000;
    const auto run = [&](Nanoseconds duration, std::uint64_t per_ms) {
        for (const Nanoseconds end = time + duration; time < end; time += 1'000'000)
            share.record(delivered += per_ms, 7, time);
    };
    run(20'000'000'000, 7'500);
    CHECK(share.bytes() == doctest::Approx(7.5e6 * 0.06 / 7).epsilon(0.01));
    run(5'000'000'000, 0);
    CHECK(share.bytes() == doctest::Approx(7.5e6 * 0.06 / 7).epsilon(0.01));
    // A peer is gone, and with it the bytes that it had received.
    delivered /= 7;
    run(5'000'000'000, 7'500);
    CHECK(share.bytes() == doctest::Approx(7.5e6 * 0.06 / 7).epsilon(0.01));
    // The link becomes slower.
    run(20'000'000'000, 750);
    CHECK(share.bytes() == doctest::Approx(0.75e6 * 0.06 / 7).epsilon(0.01));
}
