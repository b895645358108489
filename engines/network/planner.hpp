// How much to measure: messages a burst, rounds, and passes within a time budget.
//
// Two straight lines, probed before the sweep, say what a message and a whole burst (with its
// barriers, stamping and verification) cost for any size. From them: a window that lets a burst
// last long enough to be timed; how many rounds the budget can pay for; and each item's (size and
// operation) share of it, which leaves the larger sizes at least the time for one pass. Pure
// arithmetic on agreed figures, so that every rank comes to the same plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace assay::network {

struct Work {
    std::vector<std::size_t> sizes;  // bytes, as given
    int operations;                  // of each size
    double budget = 0;               // seconds for the whole sweep; 0: none
    double confidence =
        0;  // relative half-width of the median's interval that ends an item; 0: none
    std::int64_t iterations = 0;  // messages a flow and size; 0: as the rest says
    int smallest_window = 1;      // fills the flight
    int lanes = 1;                // at most that many at one rank and direction
    std::size_t memory = 0;       // bytes of place for messages, a rank and direction
};

struct Line {
    double fixed = 0, slope = 0;
    double at(double x) const { return fixed + slope * x; }
    // Through two points; not falling and not negative.
    static Line through(double x0, double y0, double x1, double y1);
};

class Planner {
public:
    // `message`: timed seconds a message of a flow; `burst`: seconds of a burst of the smallest
    // window, all included. Both over the size in bytes.
    Planner(Work work, Line message, Line burst)
        : work_(std::move(work)), message_(message), burst_(burst) {}

    // Rounds that the budget can pay for: all, or as many as fit, but at least 10 (ten random
    // shifts find every slow side, see the notes on sampling in schedule.hpp).
    int affordable_rounds(int all) const;
    void set_rounds(int rounds) { rounds_ = rounds; }

    int window(std::size_t size) const;
    double burst_seconds(std::size_t size, int window) const {
        return message_.at(static_cast<double>(size)) * window;
    }
    // The window for the next pass, after bursts of `window` messages have taken `longest` seconds.
    int adapted(std::size_t size, int window, double longest) const;

    // When the item (index over sizes, then operations) has had its share, in seconds since the
    // sweep began, if it begins at `elapsed`. Infinity without a budget.
    double deadline(std::size_t item, double elapsed) const;
    bool finished(std::int64_t messages, const std::vector<double>& passes) const;
    // Seconds that the items from `item` on will take.
    double left(std::size_t item, double elapsed) const;

private:
    double least(std::size_t item) const;  // seconds of one pass with the smallest window
    double burst_target() const;
    std::size_t items() const {
        return work_.sizes.size() * static_cast<std::size_t>(work_.operations);
    }
    std::size_t size_of(std::size_t item) const {
        return work_.sizes[item / static_cast<std::size_t>(work_.operations)];
    }
    int bounded(std::size_t size, double window) const;

    Work work_;
    Line message_, burst_;
    int rounds_ = 1;
};

}  // namespace assay::network
