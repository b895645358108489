// Collects the results of an operation over repetitions, and emits its measurements and data
// errors.
#include "storage/ior/results.hpp"

#include <nlohmann/json.hpp>

#include "storage/ior/ior.hpp"
#include "storage/ranks/straggler.hpp"

namespace assay::storage {
namespace {

// A JSON array of arrays: file, writer, reader, transfer, file offset, expected and observed word.
std::string to_json(const std::vector<LocatedMismatch>& mismatches) {
    Json list = Json::array();
    for (const LocatedMismatch& mismatch : mismatches)
        list.push_back({mismatch.file, mismatch.writer, mismatch.reader, mismatch.transfer,
                        mismatch.wrong.offset, mismatch.wrong.expected, mismatch.wrong.observed});
    return list.dump();
}

// Emits a corruption record for each wrong transfer. `gathered`: by rank, the JSON of to_json().
void report_corruptions(Ranks& ranks, const Plan& plan, const Json& params,
                        const std::vector<std::string>& gathered) {
    for (const std::string& rank_mismatches : gathered)
        for (const Json& mismatch : Json::parse(rank_mismatches)) {
            const std::uint64_t offset = mismatch[4];
            Json details = params;
            details["size"] = plan.transfer;
            details["file"] = mismatch[0];
            details["file_offset"] = offset;
            details["writer"] = mismatch[1];
            details["reader"] = mismatch[2];
            const Subject subject{.host = ranks.host(mismatch[1].get<int>()),
                                  .peer = ranks.host(mismatch[2].get<int>())};
            ranks.sink.corruption(ranks.measurement, subject, details, mismatch[3],
                                  offset - plan.offset(mismatch[3], mismatch[1], ranks.size()),
                                  mismatch[5], mismatch[6]);
        }
}

}  // namespace

void Tally::add(double open_s, double transfer_s, double close_s, double total_s,
                std::vector<double> own_times, const Plan& plan, std::uint64_t transfers) {
    const double bytes = static_cast<double>(transfers) * static_cast<double>(plan.transfer);
    open.push_back(open_s);
    transfer.push_back(transfer_s);
    close.push_back(close_s);
    total.push_back(total_s);
    bandwidth.push_back(bytes / total_s);
    rate.push_back(static_cast<double>(transfers) / transfer_s);
    if (plan.is_partial()) moved.push_back(bytes);
    rank_times.push_back(std::move(own_times));
}

void Tally::add_mismatches(const Tally& other) {
    wrong += other.wrong;
    for (const LocatedMismatch& mismatch : other.mismatches)
        if (mismatches.size() < max_mismatches) mismatches.push_back(mismatch);
}

void report(Ranks& ranks, const Plan& plan, const std::string& operation,
            const std::string& read_from, Tally& tally) {
    const Histogram latency = ranks.merge_histograms(tally.latency);
    std::uint64_t wrong[] = {tally.wrong};
    ranks.allreduce_sum(wrong);
    const std::vector<std::string> mismatches = ranks.gather(to_json(tally.mismatches));
    if (!ranks.is_root()) return;
    Json params = ranks.parameters();
    params["op"] = operation;
    if (!read_from.empty()) params["data"] = read_from;
    params.update(plan.params());
    report_corruptions(ranks, plan, params, mismatches);
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
    emit("moved", tally.moved);
    emit("stonewall_bandwidth", tally.stonewall_bandwidth);
    // In collective calls all ranks wait for the slowest, which cannot be identified.
    if (!plan.collective && ranks.size() > 1 && !tally.rank_times.empty())
        report_straggler(ranks, params, tally.rank_times);
    if (read_from.empty() && !plan.check_write) return;  // nothing was compared
    const double count[] = {static_cast<double>(wrong[0])};
    ranks.sink.measurement(ranks.measurement, "wrong", {}, params, summarize(count));
}

}  // namespace assay::storage
