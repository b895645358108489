// Tests of start_helper_thread().
#include <doctest/doctest.h>
#include <sched.h>
#include <unistd.h>

#include "storage/store/helper_thread.hpp"

using namespace assay::storage;

namespace {

void* count_processors(void* result) {
    // The affinity is set after the thread has started.
    for (int attempt = 0; attempt < 60'000; ++attempt, usleep(1000)) {
        cpu_set_t set;
        CPU_ZERO(&set);
        sched_getaffinity(0, sizeof set, &set);
        *static_cast<int*>(result) = CPU_COUNT(&set);
        if (CPU_COUNT(&set) > 1) break;
    }
    return nullptr;
}

}  // namespace

TEST_CASE("helper threads are not bound to the processor of their rank") {
    cpu_set_t before, first_processor;
    REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
    if (CPU_COUNT(&before) < 2) return;
    CPU_ZERO(&first_processor);
    for (int processor = 0; !CPU_COUNT(&first_processor); ++processor)
        if (CPU_ISSET(processor, &before)) CPU_SET(processor, &first_processor);
    REQUIRE(sched_setaffinity(0, sizeof first_processor, &first_processor) == 0);
    pthread_t thread;
    int processors = 0;
    const bool started = start_helper_thread(thread, count_processors, &processors);
    if (started) pthread_join(thread, nullptr);
    sched_setaffinity(0, sizeof before, &before);
    REQUIRE(started);
    CHECK(processors >= CPU_COUNT(&before));
}
