#include "network/planner.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/statistics.hpp"
#include "network/exchange.hpp"

namespace assay::network {
namespace {

constexpr int least_rounds = 10;
constexpr int passes_hoped_for = 6;  // fewer cannot bound a median at 95 %
constexpr int passes_at_most = 30;   // without a budget
// A burst long enough that the skew of a barrier's end, and one scheduling hiccup, weigh little.
constexpr double burst_hoped_for = 0.05, burst_least = 0.002;  // seconds
constexpr double window_at_most =
    1 << 20;  // cells are counted in int; bounds the books kept of each message

}  // namespace

Line Line::through(double x0, double y0, double x1, double y1) {
    const double slope = x1 > x0 ? std::max(0.0, (y1 - y0) / (x1 - x0)) : 0;
    return {std::max(0.0, y0 - slope * x0), slope};
}

double Planner::least(std::size_t item) const {
    return rounds_ * burst_.at(static_cast<double>(size_of(item)));
}

int Planner::affordable_rounds(int all) const {
    if (work_.budget <= 0) return all;
    double one_round = 0;
    for (std::size_t item = 0; item < items(); ++item)
        one_round += burst_.at(static_cast<double>(size_of(item)));
    const double affordable = std::min(work_.budget / one_round, static_cast<double>(all));
    return std::max(static_cast<int>(affordable), std::min(least_rounds, all));
}

double Planner::burst_target() const {
    if (work_.budget <= 0) return burst_hoped_for;
    const double share = work_.budget / static_cast<double>(items());
    return std::clamp(share / (passes_hoped_for * rounds_), burst_least, burst_hoped_for);
}

int Planner::bounded(std::size_t size, double window) const {
    const double room =
        static_cast<double>(work_.memory / (stride(size) * static_cast<std::size_t>(work_.lanes)));
    const double lanes = work_.lanes;
    window = std::min({window, room, std::max(1.0, window_at_most / lanes)});
    return std::max(work_.smallest_window, static_cast<int>(window));
}

int Planner::window(std::size_t size) const {
    if (work_.iterations > 0)
        return static_cast<int>(
            std::min<std::int64_t>(bounded(size, window_at_most), work_.iterations));
    return bounded(size, burst_target() / std::max(message_.at(static_cast<double>(size)), 1e-9));
}

int Planner::adapted(std::size_t size, int window, double longest) const {
    if (work_.iterations > 0 || longest <= 0) return window;
    const double factor = burst_target() / longest;
    if (factor > 0.5 && factor < 2) return window;  // near enough: comparable passes
    return bounded(size, window * std::clamp(factor, 0.1, 10.0));
}

double Planner::deadline(std::size_t item, double elapsed) const {
    if (work_.budget <= 0) return std::numeric_limits<double>::infinity();
    double reserved = 0;
    for (std::size_t later = item; later < items(); ++later) reserved += least(later);
    const double spare = std::max(0.0, work_.budget - elapsed - reserved);
    return elapsed + least(item) + spare / static_cast<double>(items() - item);
}

bool Planner::finished(std::int64_t messages, const std::vector<double>& passes) const {
    if (work_.iterations > 0) return messages >= work_.iterations;
    if (work_.confidence > 0 && median_confidence(passes) <= work_.confidence) return true;
    return work_.budget <= 0 && passes.size() >= passes_at_most;
}

double Planner::left(std::size_t item, double elapsed) const {
    double least_left = 0, hoped = 0;
    for (; item < items(); ++item) {
        least_left += least(item);
        hoped += rounds_ * std::max(burst_.at(static_cast<double>(size_of(item))), burst_target()) *
                 passes_hoped_for;
    }
    if (work_.budget <= 0) return hoped;
    return std::max(least_left, std::min(hoped, work_.budget - elapsed));
}

}  // namespace assay::network
