// Tests of the planner of a sweep over message sizes: windows, the number of rounds, and the time
// budget.
#include "network/planner.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "network/exchange.hpp"

using namespace assay::network;

namespace {

// 23 sizes over 100 Mbit/s links, 8 hosts.
PlannerInput slow_network() {
    PlannerInput input{.operations = 1, .budget = 60, .confidence = 0.05, .memory = 64 << 20};
    for (std::size_t size = 1; size <= (4 << 20); size *= 2) input.sizes.push_back(size);
    return input;
}

constexpr double link = 12.5e6;  // B/s
const LinearCost message_cost{100e-6, 1 / link};
const LinearCost burst_cost{2e-3, 1.1 / link};

}  // namespace

TEST_CASE("a linear cost neither decreases nor is negative") {
    CHECK(LinearCost::from_points(0, 1, 10, 21).seconds_for(20) == doctest::Approx(41));
    CHECK(LinearCost::from_points(1, 5, 10, 4).seconds_for(100) == 5);
    CHECK(LinearCost::from_points(1, 0, 10, 900).seconds_for(0) >= 0);
    CHECK(LinearCost::from_points(8, 3, 8, 3).seconds_for(1000) == 3);
}

TEST_CASE(
    "a window fits the memory, is not below the in-flight limit, and makes a burst last 1 ms") {
    for (const int flows : {1, 48})
        for (const int inflight : {1, 16, 500}) {
            PlannerInput input = slow_network();
            input.max_flows = flows;
            input.smallest_window = inflight;
            Planner planner(input, message_cost, burst_cost);
            planner.set_rounds(7);
            for (const std::size_t size : input.sizes) {
                const int window = planner.window(size);
                CHECK(window >= inflight);
                if (window > inflight) {
                    CHECK(static_cast<std::size_t>(window) * static_cast<std::size_t>(flows) *
                              stride(size) <=
                          input.memory);
                    CHECK(planner.burst_seconds(size, window) > 1e-3);
                    CHECK(planner.burst_seconds(size, window) < 0.1);
                }
            }
        }
}

TEST_CASE("a given number of iterations is the window, if the memory has space for it") {
    PlannerInput input = slow_network();
    input.iterations = 1024;
    const Planner planner(input, message_cost, burst_cost);
    CHECK(planner.window(1) == 1024);
    CHECK(planner.window(4 << 20) == 16);  // limited by the memory
    CHECK(planner.next_window(1, 1024, 100) == 1024);
    CHECK_FALSE(planner.finished(1023, {1, 1, 1, 1, 1, 1, 1}));
    CHECK(planner.finished(1024, {}));
    input.iterations = 3;
    CHECK(Planner(input, message_cost, burst_cost).window(64) == 3);
}

TEST_CASE("a slow network's sweep stays near its budget and reaches every size") {
    const PlannerInput input = slow_network();
    Planner planner(input, message_cost, burst_cost);
    const int rounds = planner.affordable_rounds(7);
    CHECK(rounds == 7);
    planner.set_rounds(rounds);
    double elapsed = 0;
    for (std::size_t item = 0; item < input.sizes.size(); ++item) {
        const std::size_t size = input.sizes[item];
        const double deadline = planner.deadline(item, elapsed);
        const double pass = rounds * (burst_cost.seconds_for(static_cast<double>(size)) +
                                      message_cost.seconds_for(static_cast<double>(size)) *
                                          (planner.window(size) - 1));
        const double left = planner.remaining(item, elapsed);
        CHECK(left > 0);
        CHECK(left <= input.budget);
        do
            elapsed += pass;  // as the sweep does: at least one pass, and at most half a pass
                              // beyond the budget
        while (elapsed + pass / 2 <= deadline);
    }
    CHECK(elapsed > 0.8 * input.budget);
    CHECK(elapsed < 1.1 * input.budget);
}

TEST_CASE(
    "a budget too short for every size leaves out the largest, never the last that shows "
    "bandwidth") {
    for (const double budget : {0.1, 1.0, 5.0, 12.0, 60.0}) {
        PlannerInput input = slow_network();
        input.budget = budget;
        Planner planner(input, message_cost, burst_cost);
        planner.set_rounds(7);
        const std::vector<std::size_t> dropped = planner.drop_sizes(budget);
        CHECK(dropped.size() + planner.sizes().size() == input.sizes.size());
        CHECK(std::ranges::count_if(planner.sizes(),
                                    [](std::size_t size) { return size >= 64 << 10; }) >= 1);
        double cost = 0;
        for (const std::size_t size : planner.sizes())
            cost += 7 * (burst_cost.seconds_for(static_cast<double>(size)) +
                         message_cost.seconds_for(static_cast<double>(size)));
        CHECK((cost <= budget || planner.sizes().size() == 1));
        CHECK(dropped.empty() == (budget > 10));
    }
}

TEST_CASE("with many rounds at least ten are sampled") {
    PlannerInput input = slow_network();
    input.budget = 20;
    CHECK(Planner(input, message_cost, burst_cost).affordable_rounds(9999) >= 10);
    CHECK(Planner(input, message_cost, burst_cost).affordable_rounds(9999) < 9999);
    CHECK(Planner(input, message_cost, burst_cost).affordable_rounds(4) == 4);
    input.budget = 0;
    CHECK(Planner(input, message_cost, burst_cost).affordable_rounds(9999) == 9999);
}

TEST_CASE("an item ends when the median is known well enough, after six passes at least") {
    const Planner planner(slow_network(), message_cost, burst_cost);
    CHECK_FALSE(planner.finished(5, {1, 1, 1, 1, 1}));
    CHECK(planner.finished(7, {1, 1, 1, 1, 1, 1, 1}));
    CHECK_FALSE(planner.finished(7, {1, 2, 3, 4, 5, 6, 7}));
}

TEST_CASE("simulated passes end when most are equal, whatever the budget and the confidence") {
    PlannerInput input = slow_network();
    input.confidence = 0;
    CHECK_FALSE(Planner(input, message_cost, burst_cost).finished(9, {1, 1, 1, 1, 1, 1, 1, 1, 1}));
    input.simulated = true;
    const Planner planner(input, message_cost, burst_cost);
    CHECK(planner.finished(2, {5, 5}));
    CHECK_FALSE(planner.finished(1, {5}));
    CHECK_FALSE(planner.finished(2, {4, 5}));
    CHECK_FALSE(planner.finished(4, {3, 4, 5, 5}));  // the median is 4.5
    CHECK(planner.finished(5, {3, 4, 5, 5, 5.000001}));
    CHECK_FALSE(planner.finished(3, {5, 5.0001, 5.0002}));
}

TEST_CASE("a simulated burst has as many messages as its rate needs, and no more") {
    PlannerInput input = slow_network();
    input.simulated = true;
    input.max_window = max_window(true, 1);
    Planner planner(input, {1e-9, 0}, burst_cost);
    planner.set_rounds(1);
    CHECK(planner.window(1) == 128 * 64);
    CHECK(planner.next_window(1, 128 * 64, 1e-6) == 128 * 64);
    CHECK(max_window(true, 64) == 128 * 128);
    CHECK(max_window(false, 1) == 1 << 20);
    CHECK(max_window(true, 65536) == 1 << 20);  // of indices
}

TEST_CASE("only bursts far from the target duration change the window") {
    Planner planner(slow_network(), message_cost, burst_cost);
    planner.set_rounds(7);
    CHECK(planner.next_window(1024, 100, 10.0) < 100);
    CHECK(planner.next_window(1024, 100, 1e-5) == 1000);
    const double target = 60.0 / 23 / (6 * 7);
    CHECK(planner.next_window(1024, 100, std::min(target, 0.05)) == 100);
}
