// Tests of the sequence tracker: on random streams with loss, duplicates and delays, its counts
// equal those of a reference that stores all sequence numbers.
#include "node/udp/sequence_tracker.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

using assay::node::SequenceTracker;

namespace {

// The definitions of RFC 4737, with unlimited memory.
struct ReferenceTracker {
    std::set<std::uint64_t> seen{};
    std::uint64_t next = 0, duplicates = 0, reordered = 0;

    void add(std::uint64_t sequence) {
        if (!seen.insert(sequence).second) ++duplicates;
        else if (sequence < next) ++reordered;
        next = std::max(next, sequence + 1);
    }
};

// The numbers 0 .. messages - 1 in the order in which a network delivers them. `lost` and `twice`
// are probabilities; a message is up to `delay` places late.
std::vector<std::uint64_t> delivered(std::mt19937_64& random, std::uint64_t messages, double lost,
                                     double twice, std::uint64_t delay) {
    std::uniform_real_distribution<> share(0, 1);
    std::vector<std::pair<std::uint64_t, std::uint64_t>> positions;
    for (std::uint64_t m = 0; m < messages; ++m) {
        if (share(random) < lost) continue;
        positions.push_back({m + (share(random) < 0.1 ? random() % (delay + 1) : 0), m});
        if (share(random) < twice) positions.push_back({m + random() % (delay + 1), m});
    }
    std::stable_sort(positions.begin(), positions.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<std::uint64_t> order;
    for (const auto& [_, m] : positions) order.push_back(m);
    return order;
}

template <std::uint64_t bits>
void compare(const std::vector<std::uint64_t>& order) {
    SequenceTracker<bits> tracker;
    ReferenceTracker reference;
    for (const std::uint64_t m : order) {
        tracker.add(m);
        reference.add(m);
    }
    CHECK(tracker.unique() == reference.seen.size());
    CHECK(tracker.duplicates() == reference.duplicates);
    CHECK(tracker.reordered() == reference.reordered);
    CHECK(tracker.next() == reference.next);
    CHECK(tracker.late() == 0);
}

}  // namespace

TEST_CASE("exact within the window, for any loss, duplication and reordering") {
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random(seed);
        const std::uint64_t messages = 1 + random() % 5000;
        const double lost = seed % 3 == 0 ? 0 : 0.9 * static_cast<double>(random() % 100) / 100;
        compare<1024>(delivered(random, messages, lost, 0.05 * static_cast<double>(seed % 4),
                                random() % 900));
    }
}

TEST_CASE("the default window holds a million messages") {
    std::mt19937_64 random(1);
    compare<1 << 20>(delivered(random, 3'000'000, 0.01, 0.001, 900'000));
}

TEST_CASE("a jump over the whole window clears it") {
    SequenceTracker<128> tracker;
    tracker.add(0);
    tracker.add(1'000'000'000'000);
    tracker.add(1'000'000'000'000 - 63);  // uses a word of the ring that earlier numbers have used
    tracker.add(2'000'000'000'000);
    CHECK(tracker.unique() == 4);
    CHECK(tracker.duplicates() == 0);
    CHECK(tracker.reordered() == 1);
}

TEST_CASE("a message behind the window counts as late only") {
    SequenceTracker<128> tracker;
    for (std::uint64_t m = 100; m < 1000; ++m) tracker.add(m);
    tracker.add(5);    // never seen
    tracker.add(200);  // seen
    CHECK(tracker.late() == 2);
    CHECK(tracker.unique() == 900);
    CHECK(tracker.duplicates() == 0);
    tracker.add(999);
    CHECK(tracker.duplicates() == 1);
}
