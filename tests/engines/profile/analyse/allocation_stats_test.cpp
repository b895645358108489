// AllocationStats, compared with a straightforward computation.
#include "profile/analyse/allocation_stats.hpp"

#include <doctest/doctest.h>

#include <map>
#include <random>

using namespace assay::heap;

namespace {

Event event(Kind kind, std::uint64_t time, std::uint64_t address, std::uint64_t size = 0,
            std::uint32_t stack = 0) {
    return {time, address | (static_cast<std::uint64_t>(kind) << kind_shift), size, stack, 0};
}

constexpr std::uint32_t stacks = 6;

// Copies all stacks' live bytes at each new peak.
struct Reference {
    std::map<std::uint64_t, std::pair<std::uint64_t, std::uint32_t>> blocks;
    std::map<std::uint32_t, std::uint64_t> live, stack_peak, at_peak;
    std::uint64_t total = 0, peak = 0;

    void allocate(std::uint64_t address, std::uint64_t size, std::uint32_t stack) {
        blocks[address] = {size, stack};
        live[stack] += size;
        total += size;
        stack_peak[stack] = std::max(stack_peak[stack], live[stack]);
        if (total > peak) {
            peak = total;
            at_peak = live;
        }
    }
    void free(std::uint64_t address) {
        const auto [size, stack] = blocks.at(address);
        blocks.erase(address);
        live[stack] -= size;
        total -= size;
    }
};

}  // namespace

TEST_CASE("peaks of the process and of each stack, live bytes at the peak, and leaks are exact") {
    std::mt19937_64 random(3);
    for (int round = 0; round < 100; ++round) {
        AllocationStats stats(0, 100'000, 50, stacks);
        Reference reference;
        std::uint64_t time = 0, next = 0x1000;
        for (int k = 0; k < 1000; ++k) {
            time += random() % 100;
            const auto thread = static_cast<std::uint32_t>(random() % 3);
            const auto stack = static_cast<std::uint32_t>(random() % stacks);
            const std::uint64_t size = random() % 1000;
            const std::uint64_t operation = random() % 10;
            if (operation < 5 || reference.blocks.empty()) {
                next += 0x400;
                stats.add(thread, event(Kind::malloc, time, next, size, stack));
                reference.allocate(next, size, stack);
                continue;
            }
            auto victim = reference.blocks.begin();
            std::advance(victim, static_cast<long>(random() % reference.blocks.size()));
            const std::uint64_t address = victim->first;
            const auto [size_before, owner] = victim->second;
            if (operation < 8) {
                stats.add(thread, event(Kind::free, time, address, 0, stack));
                reference.free(address);
            } else {
                const bool fails = operation == 9 && random() % 2 == 0;
                stats.add(thread, event(Kind::realloc_from, time, address, 0, stack));
                reference.free(address);
                stats.add(thread, event(Kind::realloc, time + 1, address,
                                        fails ? not_reallocated : size, stack));
                if (fails) reference.allocate(address, size_before, owner);
                else reference.allocate(address, size, stack);
            }
        }
        stats.finish();
        REQUIRE(stats.peak == reference.peak);
        REQUIRE(stats.live == reference.total);
        REQUIRE(stats.live_count == reference.blocks.size());
        REQUIRE(stats.unknown_frees == 0);
        for (std::uint32_t s = 0; s < stacks; ++s) {
            REQUIRE(stats.stacks[s].live == reference.live[s]);
            REQUIRE(stats.stacks[s].peak == reference.stack_peak[s]);
            REQUIRE(stats.stacks[s].at_peak == reference.at_peak[s]);
        }
        REQUIRE(*std::max_element(stats.timeline.live.begin(), stats.timeline.live.end()) ==
                reference.peak);
    }
}

TEST_CASE("a temporary block is freed by its own thread before the next allocation") {
    AllocationStats stats(0, 1000, 10, 4);
    stats.add(1, event(Kind::malloc, 1, 0x10, 8, 3));
    stats.add(2, event(Kind::malloc, 2, 0x20, 8, 3));  // another thread's allocation does not count
    stats.add(1, event(Kind::free, 3, 0x10));
    stats.add(1, event(Kind::malloc, 4, 0x30, 8, 3));
    stats.add(1, event(Kind::malloc, 5, 0x40, 8, 3));
    stats.add(1, event(Kind::free, 6, 0x30));
    stats.finish();
    CHECK(stats.stacks[3].temporary == 1);
}

TEST_CASE("unknown frees are counted, and a block allocated again at its address is freed") {
    AllocationStats stats(0, 1000, 10, 4);
    stats.add(1, event(Kind::free, 1, 0x10));
    CHECK(stats.unknown_frees == 1);
    stats.add(1, event(Kind::malloc, 2, 0x20, 100, 3));
    stats.add(1, event(Kind::malloc, 3, 0x20, 50, 3));
    stats.finish();
    CHECK(stats.live == 50);
    CHECK(stats.live_count == 1);
}
