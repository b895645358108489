// Test of the watchdog, which reports a call that does not return.
#include "transport/watchdog.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <semaphore>

using namespace assay;

TEST_CASE("a call that does not return is reported once, one that returns is not") {
    std::counting_semaphore<1 << 20> stalls{0}, checks{0};
    std::atomic<int> stall_count{0};
    Watchdog watchdog(
        20'000'000,
        [&] {
            ++stall_count;
            stalls.release();
        },
        [&] { checks.release(); });
    watchdog.enter(now());
    watchdog.leave();
    REQUIRE(checks.try_acquire_for(std::chrono::seconds(120)));
    CHECK(stall_count == 0);
    watchdog.enter(now());
    CHECK(stalls.try_acquire_for(std::chrono::seconds(120)));
    CHECK(stall_count == 1);
}
