#include "transport/watchdog.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <semaphore>

using namespace assay;

TEST_CASE("a call that does not come back is noticed, once, and one that does is not") {
    std::counting_semaphore<1 << 20> noticed{0}, looked{0};
    std::atomic<int> times{0};
    Watchdog watchdog(
        20'000'000,
        [&] {
            ++times;
            noticed.release();
        },
        [&] { looked.release(); });
    watchdog.enter(now());
    watchdog.leave();
    REQUIRE(looked.try_acquire_for(std::chrono::seconds(20)));
    CHECK(times == 0);
    watchdog.enter(now());
    CHECK(noticed.try_acquire_for(std::chrono::seconds(20)));
    CHECK(times == 1);
}
