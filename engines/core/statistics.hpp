// Order statistics of samples, and a histogram for the hot path.
//
// Timings have outliers on one side only, so they are summarised by medians and percentiles, not
// means. Percentiles interpolate linearly between order statistics (Hyndman & Fan 1996, type 7, as
// in numpy).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/clock.hpp"

namespace assay {

// Values are in the unit of the samples. mad: median absolute deviation from the median, unscaled.
struct Summary {
    std::uint64_t n = 0;
    double median = 0, mad = 0, min = 0, max = 0, p5 = 0, p95 = 0, p99 = 0;
};

// `share` is 0 to 1; `sorted` is ascending and not empty.
double percentile(std::span<const double> sorted, double share);
// Returns n = 0 and zeros for an empty span.
Summary summarize(std::span<const double> samples);

// Half-width of the 95 % confidence interval of the median, relative to the median (order
// statistics, binomial). Infinity below 6 samples, which cannot bound a median at that level.
double median_confidence(std::span<const double> samples);

// A histogram of durations from 1 ns to 2^63 ns. A bucket is 1/64 of its value wide (error under
// 0.8 %). record() takes two shifts and an increment; histograms of several ranks are merged by
// adding their counts.
class Histogram {
public:
    static constexpr int sub_bits = 6;
    static constexpr std::size_t buckets = (64 - sub_bits) << sub_bits;

    void record(Nanoseconds value) {
        ++counts_[bucket(value)];
        ++total_;
    }
    void clear();
    void merge(std::span<const std::uint64_t> counts);  // of length `buckets`
    std::span<const std::uint64_t> counts() const { return counts_; }
    std::uint64_t total() const { return total_; }
    double quantile(double share) const;  // seconds; 0 when empty
    Summary summary() const;              // seconds
    // Calls visit(midpoint in seconds, count) for each bucket that is not empty, ascending.
    template <class Visit>
    void for_each(Visit visit) const {
        for (std::size_t i = 0; i < buckets; ++i)
            if (counts_[i] != 0) visit(midpoint(i) * 1e-9, counts_[i]);
    }

private:
    static std::size_t bucket(Nanoseconds value) {
        const auto v = static_cast<std::uint64_t>(value < 0 ? 0 : value);
        if (v < (1u << sub_bits)) return v;
        const int shift = 63 - __builtin_clzll(v) - sub_bits;
        return (static_cast<std::size_t>(shift + 1) << sub_bits) +
               ((v >> shift) & ((1u << sub_bits) - 1));
    }
    static double midpoint(std::size_t bucket);  // ns

    std::array<std::uint64_t, buckets> counts_{};
    std::uint64_t total_ = 0;
};

}  // namespace assay
