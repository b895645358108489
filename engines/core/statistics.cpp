// Percentiles, summaries and the histogram of durations.
#include "core/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace assay {

double percentile(std::span<const double> sorted, double share) {
    const double position = share * static_cast<double>(sorted.size() - 1);
    const auto below = static_cast<std::size_t>(position);
    const auto above = std::min(below + 1, sorted.size() - 1);
    return sorted[below] +
           (position - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

Summary summarize(std::span<const double> samples) {
    if (samples.empty()) return {};
    std::vector<double> sorted(samples.begin(), samples.end());
    std::ranges::sort(sorted);
    Summary s{.n = sorted.size(),
              .median = percentile(sorted, 0.5),
              .mad = 0,
              .min = sorted.front(),
              .max = sorted.back(),
              .p5 = percentile(sorted, 0.05),
              .p95 = percentile(sorted, 0.95),
              .p99 = percentile(sorted, 0.99)};
    for (double& value : sorted) value = std::abs(value - s.median);
    std::ranges::sort(sorted);
    s.mad = percentile(sorted, 0.5);
    return s;
}

double median_confidence(std::span<const double> samples) {
    if (samples.size() < 6) return std::numeric_limits<double>::infinity();
    std::vector<double> sorted(samples.begin(), samples.end());
    std::ranges::sort(sorted);
    // The interval between the order statistics n/2 -+ 1.96 sqrt(n)/2 covers the median (normal
    // approximation of the binomial; Hettmansperger & Sheather 1986).
    const double n = static_cast<double>(sorted.size());
    const double reach = 1.96 * std::sqrt(n) / 2;
    const auto low = static_cast<std::size_t>(std::max(0.0, std::floor(n / 2 - reach)));
    const auto high =
        std::min(sorted.size() - 1, static_cast<std::size_t>(std::ceil(n / 2 + reach)));
    const double median = percentile(sorted, 0.5);
    if (median == 0)
        return sorted[high] == sorted[low] ? 0 : std::numeric_limits<double>::infinity();
    return (sorted[high] - sorted[low]) / 2 / std::abs(median);
}

void Histogram::clear() {
    counts_.fill(0);
    total_ = 0;
}

void Histogram::merge(std::span<const std::uint64_t> counts) {
    for (std::size_t i = 0; i < buckets; ++i) {
        counts_[i] += counts[i];
        total_ += counts[i];
    }
}

double Histogram::midpoint(std::size_t bucket) {
    constexpr std::size_t width = 1u << sub_bits;
    if (bucket < width) return static_cast<double>(bucket);
    const auto shift = (bucket >> sub_bits) - 1;
    const double step = std::ldexp(1.0, static_cast<int>(shift));
    return step * (static_cast<double>(width + (bucket & (width - 1))) + 0.5);
}

double Histogram::quantile(double share) const {
    if (total_ == 0) return 0;
    const double target = share * static_cast<double>(total_);
    std::uint64_t cumulative = 0;
    std::size_t last = 0;
    for (std::size_t i = 0; i < buckets; ++i) {
        if (counts_[i] == 0) continue;
        cumulative += counts_[i];
        last = i;
        if (static_cast<double>(cumulative) >= target) break;
    }
    return midpoint(last) * 1e-9;
}

Summary Histogram::summary() const {
    Summary s{.n = total_,
              .median = quantile(0.5),
              .mad = 0,
              .min = quantile(0),
              .max = quantile(1),
              .p5 = quantile(0.05),
              .p95 = quantile(0.95),
              .p99 = quantile(0.99)};
    // The deviation of each bucket from the median, ascending.
    std::vector<std::pair<double, std::uint64_t>> deviations;
    for (std::size_t i = 0; i < buckets; ++i)
        if (counts_[i] != 0)
            deviations.emplace_back(std::abs(midpoint(i) * 1e-9 - s.median), counts_[i]);
    std::ranges::sort(deviations);
    std::uint64_t cumulative = 0;
    for (const auto& [deviation, count] : deviations) {
        cumulative += count;
        s.mad = deviation;
        if (2 * cumulative >= total_) break;
    }
    return s;
}

}  // namespace assay
