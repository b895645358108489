// GroupPeaks, compared with an update of every group at every event.
#include "profile/analyse/group_peaks.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <random>

using namespace assay::heap;

TEST_CASE("the peak of every group is exact while its stacks grow and shrink") {
    std::mt19937_64 random(7);
    constexpr std::size_t stacks = 40, groups = 25;
    for (int round = 0; round < 8; ++round) {
        std::vector<std::vector<std::uint32_t>> groups_of(stacks);
        for (auto& groups_of_stack : groups_of)
            for (std::uint32_t group = 0; group < groups; ++group)
                if (random() % 4 == 0) groups_of_stack.push_back(group);
        GroupPeaks peaks(groups, [&](std::uint32_t stack) { return groups_of[stack]; });
        std::vector<std::int64_t> live(stacks), group_live(groups), group_peak(groups);
        const bool grows = round % 2 == 0;
        for (int k = 0; k < 200'000; ++k) {
            const auto stack = static_cast<std::uint32_t>(random() % stacks);
            const bool allocates = random() % (grows ? 3 : 2) != 0 || live[stack] == 0;
            const std::int64_t bytes = allocates
                                           ? static_cast<std::int64_t>(random() % 1000)
                                           : -std::min<std::int64_t>(live[stack], random() % 1000);
            live[stack] += bytes;
            peaks.add(stack, bytes);
            for (const std::uint32_t group : groups_of[stack]) {
                group_live[group] += bytes;
                group_peak[group] = std::max(group_peak[group], group_live[group]);
            }
        }
        peaks.finish();
        for (std::uint32_t group = 0; group < groups; ++group)
            REQUIRE(peaks.peak(group) == static_cast<std::uint64_t>(group_peak[group]));
    }
}

// The sanitized build checks that no sum overflows.
TEST_CASE("absurd sizes of a damaged trace leave the peaks of other groups exact") {
    GroupPeaks peaks(2, [](std::uint32_t stack) { return std::vector<std::uint32_t>{stack / 2}; });
    const std::int64_t most = std::numeric_limits<std::int64_t>::max();
    for (const std::int64_t sign : {1, -1}) {
        for (const std::uint32_t stack : {0u, 0u, 1u}) peaks.add(stack, sign * most);
        peaks.add(2, sign * 7);
        peaks.add(3, 5);
        peaks.finish();
    }
    CHECK(peaks.peak(1) == 12);
}
