#include "profile/numa/record/accesses.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <string>

using namespace assay::numa;

namespace {

SampledAccess access(int object, std::uint64_t page, int thread_node, Operation operation,
                     MemoryLevel level = MemoryLevel::local_cache) {
    return {object, 4, 0, thread_node, page, 3, {operation, level}, 500};
}

std::string written(const Accesses& accesses) {
    std::FILE* file = std::tmpfile();
    {
        Lines lines(fileno(file));
        accesses.write(lines);
    }
    std::string text(4096, 0);
    const ssize_t n = pread(fileno(file), text.data(), text.size(), 0);
    text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    std::fclose(file);
    return text;
}

}  // namespace

TEST_CASE("samples are counted once the node of their page is known") {
    Accesses accesses;
    Slices slices(0);
    accesses.add(access(1, 10, 0, Operation::load, MemoryLevel::remote_memory));
    accesses.add(access(1, 10, 0, Operation::store));
    accesses.add(access(1, 10, 0, Operation::load));
    accesses.add(access(1, 11, 1, Operation::load));
    accesses.add(access(no_object, 0, 1, Operation::load, MemoryLevel::unknown));
    CHECK(accesses.empty());
    CHECK(accesses.pending_pages() == std::vector<std::uint64_t>{10, 11});
    accesses.count_pending([](std::uint64_t page) { return page == 10 ? 1 : -1; }, slices);
    CHECK(accesses.pending_pages().empty());
    CHECK(written(accesses) ==
          "[\"access\",-1,5,0,1,-1,1,0]\n"
          "[\"access\",1,5,0,0,1,2,1]\n"
          "[\"access\",1,5,0,1,-1,1,0]\n"
          "[\"part\",1,3,0,0,1,3]\n"
          "[\"part\",1,3,0,1,-1,1]\n");
    CHECK(accesses.level_counts() == std::array<std::uint64_t, memory_levels>{3, 0, 0, 1, 1});
    REQUIRE(slices.all().size() == 1);
    CHECK(slices.all()[0].remote == 3);
    CHECK(slices.all()[0].unknown == 2);
}

TEST_CASE("slices cover any time, and nothing is lost when they become wider") {
    Slices slices(1000);
    std::uint64_t ns = 0;
    for (int k = 0; k < 40; ++k, ns = ns * 3 / 2 + 1'000'000) {
        slices.add(ns, 0, 0);
        slices.add(ns, 0, 1);
        slices.add(ns, 0, -1);
        CHECK(slices.all().size() <= Slices::max_slices);
    }
    std::uint64_t local = 0, remote = 0, unknown = 0;
    for (const Slices::Slice& slice : slices.all()) {
        CHECK(slice.local == slice.remote);
        local += slice.local;
        remote += slice.remote;
        unknown += slice.unknown;
    }
    CHECK(local == 40);
    CHECK(remote == 40);
    CHECK(unknown == 40);
    CHECK(slices.width_ns() * slices.all().size() >= ns / 3);
}
