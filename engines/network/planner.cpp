// The rounds, windows and deadlines of a sweep, from its cost models.
#include "network/planner.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/statistics.hpp"
#include "network/exchange.hpp"

namespace assay::network {
namespace {

constexpr int min_rounds = 10;
constexpr int target_passes = 6;  // fewer cannot bound a median at 95 %
constexpr int max_passes = 30;    // without a budget
// Long enough that the skew of a barrier and a scheduling delay are small against a burst.
constexpr double max_burst_target = 0.05, min_burst_target = 0.002;  // seconds
// As in assay.explain.matrix: bandwidth limits messages of this size on all known networks.
constexpr std::size_t bandwidth_size = 64 << 10;
constexpr double max_difference = 1e-6;  // of equal passes: the simulated clock counts nanoseconds

}  // namespace

LinearCost LinearCost::from_points(double x0, double y0, double x1, double y1) {
    const double slope = x1 > x0 ? std::max(0.0, (y1 - y0) / (x1 - x0)) : 0;
    return {std::max(0.0, y0 - slope * x0), slope};
}

double Planner::min_pass_seconds(std::size_t item) const {
    return rounds_ * burst_.seconds_for(static_cast<double>(size_of(item)));
}

int Planner::affordable_rounds(int all) const {
    if (input_.budget <= 0) return all;
    double one_round = 0;
    for (std::size_t item = 0; item < item_count(); ++item)
        one_round += burst_.seconds_for(static_cast<double>(size_of(item)));
    const double affordable = std::min(input_.budget / one_round, static_cast<double>(all));
    return std::max(static_cast<int>(affordable), std::min(min_rounds, all));
}

std::vector<std::size_t> Planner::drop_sizes(double seconds) {
    std::vector<std::size_t> dropped;
    const auto cost = [&](std::size_t size) {  // with a message for its latency in each round
        const double x = static_cast<double>(size);
        return rounds_ * input_.operations * (burst_.seconds_for(x) + message_.seconds_for(x));
    };
    std::size_t anchor = *std::ranges::min_element(input_.sizes);
    std::size_t smallest_bandwidth = std::numeric_limits<std::size_t>::max();
    for (const std::size_t size : input_.sizes)
        if (size >= bandwidth_size) smallest_bandwidth = std::min(smallest_bandwidth, size);
    if (smallest_bandwidth != std::numeric_limits<std::size_t>::max()) anchor = smallest_bandwidth;
    double total = 0;
    for (const std::size_t size : input_.sizes) total += cost(size);
    while (input_.budget > 0 && input_.sizes.size() > 1 && total > seconds) {
        auto largest = input_.sizes.end();
        for (auto size = input_.sizes.begin(); size != input_.sizes.end(); ++size)
            if (*size != anchor && (largest == input_.sizes.end() || *size > *largest))
                largest = size;
        if (largest == input_.sizes.end()) break;
        total -= cost(*largest);
        dropped.push_back(*largest);
        input_.sizes.erase(largest);
    }
    return dropped;
}

double Planner::burst_target() const {
    if (input_.budget <= 0) return max_burst_target;
    const double share = input_.budget / static_cast<double>(item_count());
    return std::clamp(share / (target_passes * rounds_), min_burst_target, max_burst_target);
}

int Planner::clamp_window(std::size_t size, double window) const {
    const std::size_t messages =
        input_.memory / (stride(size) * static_cast<std::size_t>(input_.max_flows));
    const double max_messages = static_cast<double>(messages);
    window = std::min({window, max_messages,
                       std::max(1.0, static_cast<double>(input_.max_window) / input_.max_flows)});
    return std::max(input_.smallest_window, static_cast<int>(window));
}

int Planner::window(std::size_t size) const {
    if (input_.iterations > 0)
        return static_cast<int>(
            std::min<std::int64_t>(clamp_window(size, input_.max_window), input_.iterations));
    return clamp_window(
        size, burst_target() / std::max(message_.seconds_for(static_cast<double>(size)), 1e-9));
}

int Planner::next_window(std::size_t size, int window, double longest) const {
    if (input_.iterations > 0 || longest <= 0) return window;
    const double factor = burst_target() / longest;
    if (factor > 0.5 && factor < 2)
        return window;  // close enough; equal windows keep passes comparable
    return clamp_window(size, window * std::clamp(factor, 0.1, 10.0));
}

double Planner::deadline(std::size_t item, double elapsed) const {
    if (input_.budget <= 0) return std::numeric_limits<double>::infinity();
    double reserved = 0;
    for (std::size_t later = item; later < item_count(); ++later)
        reserved += min_pass_seconds(later);
    const double spare = std::max(0.0, input_.budget - elapsed - reserved);
    return elapsed + min_pass_seconds(item) + spare / static_cast<double>(item_count() - item);
}

// Whether most passes are equal: more like them would not change the median.
bool Planner::agree(const std::vector<double>& passes) {
    if (passes.size() < 2) return false;
    std::vector<double> sorted = passes;
    std::ranges::sort(sorted);
    const double median = percentile(sorted, 0.5);
    const auto equal = std::ranges::count_if(
        sorted, [&](double pass) { return std::abs(pass - median) <= max_difference * median; });
    return 2 * static_cast<std::size_t>(equal) > sorted.size();
}

bool Planner::finished(std::int64_t messages, const std::vector<double>& passes) const {
    if (input_.iterations > 0) return messages >= input_.iterations;
    if (input_.simulated && agree(passes)) return true;
    if (input_.confidence > 0 && median_confidence(passes) <= input_.confidence) return true;
    return input_.budget <= 0 && passes.size() >= max_passes;
}

double Planner::remaining(std::size_t item, double elapsed) const {
    double min_seconds = 0, target_seconds = 0;
    for (; item < item_count(); ++item) {
        min_seconds += min_pass_seconds(item);
        target_seconds +=
            rounds_ *
            std::max(burst_.seconds_for(static_cast<double>(size_of(item))), burst_target()) *
            target_passes;
    }
    if (input_.budget <= 0) return target_seconds;
    return std::max(min_seconds, std::min(target_seconds, input_.budget - elapsed));
}

}  // namespace assay::network
