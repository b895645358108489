// Decides how much a sweep measures: messages per burst, rounds, and passes within a time budget.
//
// Two linear cost models, fitted to a probe before the sweep, give the time of a message and of a
// whole burst (with barriers, stamping and verification) for any size. The planner derives a window
// that makes a burst long enough to time, the number of rounds that the budget allows, and each
// item's (size and operation) share of the budget, which reserves one pass for each later item. It
// uses only values that the ranks agreed on, so every rank gets the same plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace assay::network {

struct PlannerInput {
    std::vector<std::size_t> sizes;  // bytes, in the given order
    int operations;                  // of each size
    double budget = 0;               // seconds for the whole sweep; 0: none
    double confidence = 0;           // an item ends at this relative half-width of the median's
                                     // interval; 0: no such limit
    std::int64_t iterations = 0;     // messages per flow and size; 0: chosen by the planner
    int smallest_window = 1;         // enough to fill `inflight`
    int max_flows = 1;               // the most at one rank and direction
    int max_window = 1 << 20;        // the most messages of a burst, over all its flows
    bool simulated = false;          // equal passes repeat without end
    std::size_t memory = 0;          // bytes for messages, per rank and direction
};

// Seconds as a linear function of the message size.
struct LinearCost {
    double fixed = 0, slope = 0;
    double seconds_for(double size) const { return fixed + slope * size; }
    // The line through two points (size, seconds), with slope and intercept raised to 0 if they are
    // negative.
    static LinearCost from_points(double x0, double y0, double x1, double y1);
};

class Planner {
public:
    // `message`: timed seconds per message of a flow; `burst`: total seconds of a burst with the
    // smallest window. Both are functions of the size in bytes.
    Planner(PlannerInput input, LinearCost message, LinearCost burst)
        : input_(std::move(input)), message_(message), burst_(burst) {}

    // Rounds that fit the budget, at most `all` and at least 10: ten random shifts find every slow
    // side (see sample_rounds in schedule.hpp).
    int affordable_rounds(int all) const;
    void set_rounds(int rounds) { rounds_ = rounds; }

    // Leaves out sizes, the largest first, until one pass of each fits `seconds`; keeps the
    // smallest size that shows bandwidth, or the smallest of all. Returns those left out.
    std::vector<std::size_t> drop_sizes(double seconds);
    const std::vector<std::size_t>& sizes() const { return input_.sizes; }

    // Messages per flow in the first burst of a size.
    int window(std::size_t size) const;
    double burst_seconds(std::size_t size, int window) const {
        return message_.seconds_for(static_cast<double>(size)) * window;
    }
    // The window for the next pass, after bursts of `window` messages took up to `longest` seconds.
    int next_window(std::size_t size, int window, double longest) const;

    // When the item's share of the budget ends, in seconds since the start of the sweep, if the
    // item starts at `elapsed`. Items are numbered by size, then operation. Infinity without a
    // budget.
    double deadline(std::size_t item, double elapsed) const;
    // Whether an item has enough passes; `passes` has the bandwidth of each.
    bool finished(std::int64_t messages, const std::vector<double>& passes) const;
    // Estimated seconds for the items from `item` on.
    double remaining(std::size_t item, double elapsed) const;

private:
    // Seconds of one pass with the smallest window.
    double min_pass_seconds(std::size_t item) const;
    double burst_target() const;  // seconds that a burst should take
    static bool agree(const std::vector<double>& passes);
    std::size_t item_count() const {
        return input_.sizes.size() * static_cast<std::size_t>(input_.operations);
    }
    std::size_t size_of(std::size_t item) const {
        return input_.sizes[item / static_cast<std::size_t>(input_.operations)];
    }
    int clamp_window(std::size_t size, double window) const;

    PlannerInput input_;
    LinearCost message_, burst_;
    int rounds_ = 1;
};

}  // namespace assay::network
