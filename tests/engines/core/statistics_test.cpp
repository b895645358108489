// Tests of summaries of samples, the confidence interval of the median, and histograms.
#include "core/statistics.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

using namespace assay;

TEST_CASE("a summary of known samples") {
    const std::vector<double> samples = {5, 1, 4, 2, 3};
    const Summary s = summarize(samples);
    CHECK(s.n == 5);
    CHECK(s.median == 3);
    CHECK(s.mad == 1);
    CHECK(s.min == 1);
    CHECK(s.max == 5);
    CHECK(s.p5 == doctest::Approx(1.2));
    CHECK(s.p95 == doctest::Approx(4.8));
}

TEST_CASE("summaries of no sample and of one sample") {
    CHECK(summarize({}).n == 0);
    const std::vector<double> single = {7};
    CHECK(summarize(single).median == 7);
    CHECK(summarize(single).p99 == 7);
}

TEST_CASE("the median's interval narrows with more samples and is infinite for few") {
    std::mt19937 random(1);
    std::normal_distribution<double> normal(100, 5);
    std::vector<double> samples;
    for (int i = 0; i < 5; ++i) samples.push_back(normal(random));
    CHECK(std::isinf(median_confidence(samples)));
    while (samples.size() < 30) samples.push_back(normal(random));
    const double interval_of_30 = median_confidence(samples);
    while (samples.size() < 3000) samples.push_back(normal(random));
    const double interval_of_3000 = median_confidence(samples);
    CHECK(interval_of_3000 < interval_of_30);
    // 95 %: +- 1.96 * 1.2533 sigma / sqrt(n), relative to 100.
    CHECK(interval_of_3000 ==
          doctest::Approx(1.96 * 1.2533 * 5 / std::sqrt(3000) / 100).epsilon(0.25));
}

TEST_CASE(
    "the confidence interval has the true median in 95 % of experiments, for any distribution") {
    std::mt19937 random(2);
    std::exponential_distribution<double> skewed(1);
    std::lognormal_distribution<double> heavy_tailed(0, 1);
    std::normal_distribution<double> normal(10, 1);
    std::bernoulli_distribution disturbed(0.2);
    const auto mixed = [&] { return normal(random) + (disturbed(random) ? 5 : 0); };
    // The median of the mixture: 0.8 Phi(x - 10) + 0.2 Phi(x - 15) = 0.5.
    const struct {
        std::function<double()> draw;
        double median;
    } distributions[] = {{[&] { return skewed(random); }, std::log(2)},
                         {[&] { return heavy_tailed(random); }, 1.0},
                         {[&] { return normal(random); }, 10.0},
                         {mixed, 10.31864}};
    constexpr int experiments = 4000;
    for (const auto& [draw, true_median] : distributions)
        for (const std::size_t n : {6U, 10U, 40U}) {
            int covered = 0;
            for (int experiment = 0; experiment < experiments; ++experiment) {
                std::vector<double> samples(n);
                for (double& sample : samples) sample = draw();
                const double median = summarize(samples).median;
                covered += std::abs(median - true_median) <= median_confidence(samples) * median;
            }
            // 95 % less four standard errors.
            CHECK(covered > experiments * (0.95 - 4 * std::sqrt(0.95 * 0.05 / experiments)));
        }
}

TEST_CASE("a histogram's quantiles are within a bucket's width of the samples'") {
    std::mt19937_64 random(3);
    std::lognormal_distribution<double> times(9, 2);
    Histogram histogram;
    std::vector<double> samples;
    for (int i = 0; i < 20000; ++i) {
        const auto ns = static_cast<Nanoseconds>(times(random));
        histogram.record(ns);
        samples.push_back(static_cast<double>(ns) * 1e-9);
    }
    const Summary exact = summarize(samples);
    const Summary binned = histogram.summary();
    CHECK(binned.n == exact.n);
    for (const auto& [binned_value, exact_value] : {std::pair{binned.median, exact.median},
                                                    {binned.p5, exact.p5},
                                                    {binned.p95, exact.p95},
                                                    {binned.p99, exact.p99},
                                                    {binned.min, exact.min},
                                                    {binned.max, exact.max},
                                                    {binned.mad, exact.mad}})
        CHECK(binned_value == doctest::Approx(exact_value).epsilon(0.02));
}

TEST_CASE("histograms of ranks add up, and the extremes have a bucket") {
    Histogram a, b, merged;
    for (const Nanoseconds t : {Nanoseconds{0}, Nanoseconds{1}, Nanoseconds{63}, Nanoseconds{64}})
        a.record(t), merged.record(t);
    for (const Nanoseconds t : {Nanoseconds{1} << 40, Nanoseconds{INT64_MAX}, Nanoseconds{-5}})
        b.record(t), merged.record(t);
    a.merge(b.counts());
    CHECK(a.total() == 7);
    CHECK(std::ranges::equal(a.counts(), merged.counts()));
    CHECK(a.quantile(1) == doctest::Approx(static_cast<double>(INT64_MAX) * 1e-9).epsilon(0.01));
    a.clear();
    CHECK(a.total() == 0);
    CHECK(a.quantile(0.5) == 0);
}
