#include "storage/ior/results.hpp"

#include <algorithm>

#include "storage/ior/ior.hpp"

namespace assay::storage {
namespace {

std::string packed(const std::vector<Located>& located) {
    Json all = Json::array();
    for (const Located& one : located)
        all.push_back({one.file, one.writer, one.reader, one.transfer, one.wrong.offset,
                       one.wrong.expected, one.wrong.observed});
    return all.dump();
}

void report_corruptions(Ranks& ranks, const Plan& plan, const Json& params,
                        const std::vector<std::string>& gathered) {
    for (const std::string& of_rank : gathered)
        for (const Json& one : Json::parse(of_rank)) {
            const std::uint64_t offset = one[4];
            Json where = params;
            where["size"] = plan.transfer;
            where["file"] = one[0];
            where["file_offset"] = offset;
            where["writer"] = one[1];
            where["reader"] = one[2];
            const Subject subject{.host = ranks.host(one[1].get<int>()),
                                  .peer = ranks.host(one[2].get<int>())};
            ranks.sink.corruption(ranks.measurement, subject, where, one[3],
                                  offset - plan.offset(one[3], one[1], ranks.size()), one[5],
                                  one[6]);
        }
}

// The slowest rank by the median of its own times, against the median of all ranks.
void report_straggler(Ranks& ranks, const Json& params,
                      const std::vector<std::vector<double>>& rank_times) {
    std::vector<double> medians, of_one(rank_times.size());
    for (int rank = 0; rank < ranks.size(); ++rank) {
        for (std::size_t k = 0; k < rank_times.size(); ++k)
            of_one[k] = rank_times[k][static_cast<std::size_t>(rank)];
        medians.push_back(summarize(of_one).median);
    }
    const auto slowest = std::ranges::max_element(medians);
    const int rank = static_cast<int>(slowest - medians.begin());
    // Against the others: among two ranks the slower one would stand in its own way.
    std::vector<double> others(medians);
    others.erase(others.begin() + rank);
    const double middle = summarize(others).median;
    if (middle <= 0) return;
    const double ratio[] = {*slowest / middle};
    ranks.sink.measurement(ranks.measurement, "straggler", {.host = ranks.host(rank), .rank = rank},
                           params, summarize(ratio));
}

}  // namespace

void Tally::add(double open_s, double transfer_s, double close_s, double total_s,
                std::vector<double> own_times, const Plan& plan, int ranks) {
    open.push_back(open_s);
    transfer.push_back(transfer_s);
    close.push_back(close_s);
    total.push_back(total_s);
    bandwidth.push_back(static_cast<double>(plan.bytes(ranks)) / total_s);
    rate.push_back(static_cast<double>(plan.transfers()) * ranks / transfer_s);
    rank_times.push_back(std::move(own_times));
}

void Tally::take_wrong(const Tally& other) {
    wrong += other.wrong;
    for (const Located& one : other.located)
        if (located.size() < located_at_most) located.push_back(one);
}

void report(Ranks& ranks, const Plan& plan, const std::string& operation,
            const std::string& read_from, Tally& tally) {
    const Histogram latency = ranks.merged(tally.latency);
    std::uint64_t wrong[] = {tally.wrong};
    ranks.sum(wrong);
    const std::vector<std::string> located = ranks.gather(packed(tally.located));
    if (!ranks.first()) return;
    Json params = ranks.about();
    params["op"] = operation;
    if (!read_from.empty()) params["data"] = read_from;
    params.update(plan.params());
    report_corruptions(ranks, plan, params, located);
    const auto emit = [&](const char* metric, const std::vector<double>& samples) {
        if (!samples.empty())
            ranks.sink.measurement(ranks.measurement, metric, {}, params, summarize(samples),
                                   samples);
    };
    emit("bandwidth", tally.bandwidth);
    emit("rate", tally.rate);
    if (latency.total())
        ranks.sink.measurement(ranks.measurement, "latency", {}, params, latency.summary());
    emit("open_time", tally.open);
    emit("transfer_time", tally.transfer);
    emit("close_time", tally.close);
    emit("total_time", tally.total);
    // In collective calls all wait for all, and none is seen to be slow.
    if (!plan.collective && ranks.size() > 1 && !tally.rank_times.empty())
        report_straggler(ranks, params, tally.rank_times);
    const double count[] = {static_cast<double>(wrong[0])};
    ranks.sink.measurement(ranks.measurement, "wrong", {}, params, summarize(count));
}

}  // namespace assay::storage
