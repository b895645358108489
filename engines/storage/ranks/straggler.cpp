// Finds the slowest rank and emits the measurement "straggler".
#include "storage/ranks/straggler.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace assay::storage {

void report_straggler(Ranks& ranks, const Json& params,
                      const std::vector<std::vector<double>>& rank_times) {
    std::vector<double> medians, rank_samples(rank_times.size());
    for (int rank = 0; rank < ranks.size(); ++rank) {
        for (std::size_t k = 0; k < rank_times.size(); ++k)
            rank_samples[k] = rank_times[k][static_cast<std::size_t>(rank)];
        medians.push_back(summarize(rank_samples).median);
    }
    const auto slowest = std::ranges::max_element(medians);
    const int rank = static_cast<int>(slowest - medians.begin());
    // The slowest rank is left out, because it would distort the median of few ranks.
    std::vector<double> others(medians);
    others.erase(others.begin() + rank);
    const double others_median = summarize(others).median;
    if (others_median <= 0) return;
    const double ratio[] = {*slowest / others_median};
    ranks.sink.measurement(ranks.measurement, "straggler", {.host = ranks.host(rank), .rank = rank},
                           params, summarize(ratio));
}

}  // namespace assay::storage
