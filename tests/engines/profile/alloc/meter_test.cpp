// A process reads its own resident memory to the page, and its page faults exactly.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/clock.hpp"
#include "profile/alloc/meter.hpp"
#include "sanitized.hpp"

using namespace assay;
using namespace assay::alloc;

// AddressSanitizer's shadow of the memory has pages too.
TEST_CASE("resident memory and faults are counted to the page" * doctest::skip(is_sanitized)) {
    constexpr std::size_t pages = 1000;
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void* memory =
        mmap(nullptr, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    madvise(memory, pages * page, MADV_NOHUGEPAGE);
    resident_memory();
    const std::uint64_t before = resident_memory().bytes, faults = page_faults();
    for (std::size_t k = 0; k < pages; ++k) static_cast<volatile char*>(memory)[k * page] = 1;
    CHECK(page_faults() - faults == pages);
    if (before != 0) CHECK(resident_memory().bytes - before == pages * page);
    munmap(memory, pages * page);
    if (before != 0) CHECK(resident_memory().bytes == before);
}

TEST_CASE("the length of a tick is plausible") {
    const double tick = measure_tick();
    CHECK(tick > 1e-11);
    CHECK(tick < 1e-6);
}
