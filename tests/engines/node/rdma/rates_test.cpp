// Tests of the average and peak message rate from the times of posts and completions. The peak is
// compared with perftest's exhaustive search.
#include "node/rdma/rates.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

using namespace assay;
using namespace assay::rdma;

namespace {

struct Event {
    std::uint64_t messages;
    Nanoseconds time;
};

Timeline timeline(const std::vector<Nanoseconds>& posts, const std::vector<Event>& completions) {
    Timeline timeline(posts.size());
    for (const Nanoseconds time : posts) timeline.posted(time);
    for (const Event& event : completions) timeline.completed(event.messages, event.time);
    return timeline;
}

// The highest rate over all windows from a post to a completion, as perftest computes it.
double best_window(const std::vector<Nanoseconds>& posts, const std::vector<Event>& completions) {
    double best = 0;
    for (std::size_t i = 0; i < posts.size(); ++i)
        for (const Event& event : completions)
            if (event.messages > i)
                best = std::max(
                    best, static_cast<double>(event.messages - i) /
                              static_cast<double>(std::max<Nanoseconds>(1, event.time - posts[i])));
    return best * 1e9;
}

}  // namespace

TEST_CASE("without completions the rates are 0") {
    CHECK(Timeline(3).average() == 0);
    CHECK(Timeline(3).peak() == 0);
}

TEST_CASE("one message after the other: average and peak are that rate") {
    const Timeline t = timeline({1000, 2000, 3000}, {{1, 2000}, {2, 3000}, {3, 4000}});
    CHECK(t.average() == doctest::Approx(1e6));
    CHECK(t.peak() == doctest::Approx(1e6));
}

TEST_CASE("a pause lowers the average, and leaves the peak") {
    // Four messages of 1 us, then nothing for 6 us, then one of 2 us.
    const Timeline t = timeline({0, 1000, 2000, 3000, 10000},
                                {{1, 1000}, {2, 2000}, {3, 3000}, {4, 4000}, {5, 12000}});
    CHECK(t.average() == doctest::Approx(5 / 12e-6));
    CHECK(t.peak() == doctest::Approx(1e6));
}

TEST_CASE("completions that report several messages") {
    const Timeline t = timeline({0, 10, 20, 30}, {{2, 1000}, {4, 1500}});
    CHECK(t.average() == doctest::Approx(4 / 1.5e-6));
    CHECK(t.peak() == doctest::Approx(4 / 1.5e-6));
}

TEST_CASE("the peak is that of perftest's search over every window") {
    std::mt19937 random(7);
    for (int round = 0; round < 300; ++round) {
        const std::uint64_t messages = 1 + random() % 60, depth = 1 + random() % 20,
                            every = 1 + random() % depth;
        std::vector<Nanoseconds> posts;
        std::vector<Event> completions;
        Nanoseconds time = 5'000'000'000'000;
        std::uint64_t done = 0;
        while (done < messages) {
            while (posts.size() < messages && posts.size() - done < depth)
                posts.push_back(time += random() % 50);
            done = std::min(messages, done + every);
            completions.push_back({done, time += random() % (random() % 4 == 0 ? 5000 : 300)});
        }
        CAPTURE(round);
        const Timeline t = timeline(posts, completions);
        CHECK(t.peak() == doctest::Approx(best_window(posts, completions)).epsilon(1e-9));
        CHECK(t.peak() >= t.average() * (1 - 1e-12));
    }
}

TEST_CASE("the peak of a million messages is computed without comparing all windows") {
    constexpr std::uint64_t messages = 1'000'000;
    Timeline t(messages);
    Nanoseconds time = 0;
    for (std::uint64_t m = 0; m < messages; ++m) {
        t.posted(time);
        t.completed(m + 1, time += m < messages / 2 ? 200 : 100);
    }
    CHECK(t.average() == doctest::Approx(1e9 / 150));
    CHECK(t.peak() == doctest::Approx(1e7).epsilon(1e-4));
}
