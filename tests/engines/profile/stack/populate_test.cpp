// Tests of populate(): a page that the file cannot hold is an error, not a signal.
#include "profile/stack/populate.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <initializer_list>

using namespace assay::stack;

TEST_CASE("populate() allocates pages without a change, and refuses those beyond the file's end") {
    constexpr std::size_t page = 4096, bytes = 4 * page;
    const int fd = memfd_create("populate", MFD_CLOEXEC);
    REQUIRE(ftruncate(fd, bytes) == 0);
    void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    REQUIRE(mapped != MAP_FAILED);
    auto* memory = static_cast<char*>(mapped);
    memory[page] = 7;
    memory[page + 3] = -1;
    for (const auto function : {populate, populate_by_futex}) {
        CHECK(function(memory + page, 10));
        CHECK(function(memory, bytes));
        CHECK(memory[page] == 7);
        CHECK(memory[page + 3] == -1);
    }
    REQUIRE(ftruncate(fd, 2 * page) == 0);
    for (const auto function : {populate, populate_by_futex}) {
        CHECK(function(memory, 2 * page));
        CHECK_FALSE(function(memory + 2 * page, page));
        CHECK_FALSE(function(memory, bytes));
    }
    munmap(mapped, bytes);
    close(fd);
}
