// What a process reads of itself: pages to the page, faults to the fault.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/clock.hpp"
#include "profile/alloc/meter.hpp"

using namespace assay;
using namespace assay::alloc;

TEST_CASE("resident memory and faults are counted to the page") {
    constexpr std::size_t pages = 1000;
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void* at =
        mmap(nullptr, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at != MAP_FAILED);
    madvise(at, pages * page, MADV_NOHUGEPAGE);
    resident();
    const std::uint64_t before = resident().bytes, faults = page_faults();
    for (std::size_t k = 0; k < pages; ++k) static_cast<volatile char*>(at)[k * page] = 1;
    CHECK(page_faults() - faults == pages);
    if (before != 0) CHECK(resident().bytes - before == pages * page);
    munmap(at, pages * page);
    if (before != 0) CHECK(resident().bytes == before);
}

TEST_CASE("a tick has a length") {
    const double tick = measured_tick();
    CHECK(tick > 1e-11);
    CHECK(tick < 1e-6);
}

TEST_CASE("there is memory left, and it is not without end") {
    CHECK(memory_left() > (1u << 20));
    CHECK(memory_left() < (std::uint64_t{1} << 50));
}
