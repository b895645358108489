// The accounting of blocks against one that keeps everything.
#include "profile/analyse/account.hpp"

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

// Remembers what was live of each stack at the highest moment of all.
struct Naive {
    std::map<std::uint64_t, std::pair<std::uint64_t, std::uint32_t>> blocks;
    std::map<std::uint32_t, std::uint64_t> live, own_peak, at_peak;
    std::uint64_t all = 0, peak = 0;

    void give(std::uint64_t address, std::uint64_t size, std::uint32_t stack) {
        blocks[address] = {size, stack};
        live[stack] += size;
        all += size;
        own_peak[stack] = std::max(own_peak[stack], live[stack]);
        if (all > peak) {
            peak = all;
            at_peak = live;
        }
    }
    void take(std::uint64_t address) {
        const auto [size, stack] = blocks.at(address);
        blocks.erase(address);
        live[stack] -= size;
        all -= size;
    }
};

}  // namespace

TEST_CASE(
    "peaks of the process and of each stack, what was live at them, and what is left, exactly") {
    std::mt19937_64 random(3);
    for (int round = 0; round < 100; ++round) {
        Account account(0, 100'000, 50, stacks);
        Naive naive;
        std::uint64_t time = 0, next = 0x1000;
        for (int k = 0; k < 1000; ++k) {
            time += random() % 100;
            const auto thread = static_cast<std::uint32_t>(random() % 3);
            const auto stack = static_cast<std::uint32_t>(random() % stacks);
            const std::uint64_t size = random() % 1000;
            const std::uint64_t what = random() % 10;
            if (what < 5 || naive.blocks.empty()) {
                next += 0x400;
                account.add(thread, event(Kind::malloc, time, next, size, stack));
                naive.give(next, size, stack);
                continue;
            }
            auto victim = naive.blocks.begin();
            std::advance(victim, static_cast<long>(random() % naive.blocks.size()));
            const std::uint64_t address = victim->first;
            const auto [had, owner] = victim->second;
            if (what < 8) {
                account.add(thread, event(Kind::free, time, address, 0, stack));
                naive.take(address);
            } else {
                const bool fails = what == 9 && random() % 2 == 0;
                account.add(thread, event(Kind::realloc_from, time, address, 0, stack));
                naive.take(address);
                account.add(thread, event(Kind::realloc, time + 1, address,
                                          fails ? not_reallocated : size, stack));
                if (fails) naive.give(address, had, owner);
                else naive.give(address, size, stack);
            }
        }
        account.finish();
        REQUIRE(account.peak == naive.peak);
        REQUIRE(account.live == naive.all);
        REQUIRE(account.live_count == naive.blocks.size());
        REQUIRE(account.unknown_frees == 0);
        for (std::uint32_t s = 0; s < stacks; ++s) {
            REQUIRE(account.stacks[s].live == naive.live[s]);
            REQUIRE(account.stacks[s].peak == naive.own_peak[s]);
            REQUIRE(account.stacks[s].at_peak == naive.at_peak[s]);
        }
        REQUIRE(*std::max_element(account.timeline.live.begin(), account.timeline.live.end()) ==
                naive.peak);
    }
}

TEST_CASE("temporary: freed by its own thread before that allocates again") {
    Account account(0, 1000, 10, 4);
    account.add(1, event(Kind::malloc, 1, 0x10, 8, 3));
    account.add(2, event(Kind::malloc, 2, 0x20, 8, 3));  // of another thread: it does not count
    account.add(1, event(Kind::free, 3, 0x10));
    account.add(1, event(Kind::malloc, 4, 0x30, 8, 3));
    account.add(1, event(Kind::malloc, 5, 0x40, 8, 3));
    account.add(1, event(Kind::free, 6, 0x30));
    account.finish();
    CHECK(account.stacks[3].temporary == 1);
}

TEST_CASE("what was there before, and what was freed unseen") {
    Account account(0, 1000, 10, 4);
    account.add(1, event(Kind::free, 1, 0x10));
    CHECK(account.unknown_frees == 1);
    account.add(1, event(Kind::malloc, 2, 0x20, 100, 3));
    account.add(1, event(Kind::malloc, 3, 0x20, 50, 3));
    account.finish();
    CHECK(account.live == 50);
    CHECK(account.live_count == 1);
}
