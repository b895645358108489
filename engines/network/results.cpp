// Packs, gathers and combines the tallies of all ranks, and writes the records.
#include "network/results.hpp"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

namespace assay::network {
namespace {

constexpr std::size_t max_detailed_corruptions =
    64;  // corruption records per rank, size and operation

struct FlowBandwidth {
    int source, destination;
    double bandwidth;  // B/s, median over the bursts, corrupted messages included
    std::uint64_t messages;
};

struct CorruptionCount {
    int source, destination;
    std::uint64_t messages;
};

struct RankTotals {
    double timed;  // seconds
    std::uint64_t operations;
};

// Appends a vector of plain structs to the text that a rank sends to rank 0: their number, then
// their bytes. All ranks run the same executable.
template <class T>
void pack(std::string& to, const std::vector<T>& items) {
    const std::uint64_t n = items.size();
    to.append(reinterpret_cast<const char*>(&n), sizeof n);
    to.append(reinterpret_cast<const char*>(items.data()), n * sizeof(T));
}

template <class T>
std::vector<T> unpack(std::string_view& from) {
    std::uint64_t n = 0;
    std::memcpy(&n, from.data(), sizeof n);
    std::vector<T> items(n);
    if (n) std::memcpy(items.data(), from.data() + sizeof n, n * sizeof(T));
    from.remove_prefix(sizeof n + n * sizeof(T));
    return items;
}

struct RankResult {
    RankTotals totals;
    std::vector<FlowBandwidth> flows;
    std::vector<CorruptionCount> counts;
    std::vector<Corruption> corruptions;
};

RankResult unpack_result(std::string_view packed) {
    RankResult result;
    result.totals = unpack<RankTotals>(packed).front();
    result.flows = unpack<FlowBandwidth>(packed);
    result.counts = unpack<CorruptionCount>(packed);
    result.corruptions = unpack<Corruption>(packed);
    return result;
}

using Pair = std::pair<int, int>;

// The gathered results of all ranks, on rank 0: writes the rows of the pair matrix and the
// corruptions, and returns each rank's totals.
class GatheredResults {
public:
    GatheredResults(Session& session, const Tally& tally, const std::vector<std::string>& packed)
        : session_(session), size_(static_cast<double>(tally.size)) {
        for (const std::string& result : packed) results_.push_back(unpack_result(result));
        for (const RankResult& result : results_)
            for (const CorruptionCount& count : result.counts)
                corruptions_[{count.source, count.destination}] += count.messages;
    }

    void write_corruptions(const Measurement& measurement, const Json& params) const {
        for (std::size_t rank = 0; rank < results_.size(); ++rank)
            for (const Corruption& corruption : results_[rank].corruptions)
                session_.sink.corruption(measurement,
                                         {.host = session_.label(corruption.source),
                                          .peer = session_.label(static_cast<int>(rank))},
                                         params, corruption.message, corruption.offset,
                                         corruption.expected, corruption.observed);
    }

    void write_rows(const Measurement& measurement, const Json& params) const {
        struct Cell {
            int destination;
            double bandwidth;
        };
        std::vector<std::vector<Cell>> matrix(static_cast<std::size_t>(session_.size()));
        for (const RankResult& result : results_)
            for (const FlowBandwidth& flow : result.flows)
                matrix[static_cast<std::size_t>(flow.source)].push_back(
                    {flow.destination, flow.bandwidth * correct_share(flow)});
        for (std::size_t source = 0; source < matrix.size(); ++source) {
            std::vector<Cell>& row = matrix[source];
            if (row.empty()) continue;
            std::ranges::sort(row, {}, &Cell::destination);
            std::vector<std::string> peers;
            std::vector<double> values;
            for (const auto& [destination, bandwidth] : row) {
                peers.push_back(session_.label(destination));
                values.push_back(bandwidth);
            }
            session_.sink.pairs(measurement, "bandwidth",
                                {.host = session_.label(static_cast<int>(source))}, params, peers,
                                values);
            row = {};
        }
    }

    // One value for each rank that timed something, in the order of ranks.
    std::vector<double> times() const {
        std::vector<double> values;
        for (const RankResult& result : results_)
            if (result.totals.timed > 0) values.push_back(result.totals.timed);
        return values;
    }
    std::vector<double> bandwidths() const {
        std::vector<double> values;
        for (const RankResult& result : results_) {
            if (result.totals.timed <= 0) continue;
            double messages = static_cast<double>(result.totals.operations);
            for (const FlowBandwidth& flow : result.flows)
                messages -= static_cast<double>(corrupted_messages(flow));
            values.push_back(messages * size_ / result.totals.timed);
        }
        return values;
    }

private:
    std::uint64_t corrupted_messages(const FlowBandwidth& flow) const {
        const auto entry = corruptions_.find({flow.source, flow.destination});
        return entry == corruptions_.end() ? 0 : entry->second;
    }
    double correct_share(const FlowBandwidth& flow) const {
        return 1 -
               static_cast<double>(corrupted_messages(flow)) / static_cast<double>(flow.messages);
    }

    Session& session_;
    double size_;
    std::vector<RankResult> results_;
    std::map<Pair, std::uint64_t> corruptions_;
};

Summary single(double value) { return summarize({&value, 1}); }

}  // namespace

void merge(Session& session, Histogram& latency) {
    const auto counts_here = latency.counts();
    std::vector<double> counts(counts_here.begin(), counts_here.end());
    session.sum(counts);
    const std::vector<std::uint64_t> all(counts.begin(), counts.end());
    latency.clear();
    latency.merge(all);
}

Summary halved(Summary s) {
    for (double* value : {&s.median, &s.mad, &s.min, &s.max, &s.p5, &s.p95, &s.p99}) *value /= 2;
    return s;
}

void Tally::add(const Burst& burst, const Outcome& outcome) {
    timed += outcome.elapsed;
    operations += outcome.operations;
    bytes += outcome.bytes;
    corrupted += outcome.corrupted;
    const double flow_bytes = static_cast<double>(burst.size) * burst.window;
    for (const FlowTime& flow : outcome.flows) {
        flows_[flow.peer].push_back(flow_bytes / seconds(std::max<Nanoseconds>(flow.active, 1)));
        messages_[flow.peer] += static_cast<std::uint64_t>(burst.window);
    }
    for (const int source : outcome.corrupted_sources) ++corrupted_sources_[source];
    for (const Corruption& corruption : outcome.corruptions)
        if (corruptions_.size() < max_detailed_corruptions) corruptions_.push_back(corruption);
}

std::string Tally::packed(int rank) const {
    std::vector<FlowBandwidth> flows;
    for (const auto& [peer, bandwidths] : flows_) {
        const double median = summarize(bandwidths).median;
        const bool receiving = timed_by_receiver(op);
        flows.push_back(
            {receiving ? peer : rank, receiving ? rank : peer, median, messages_.at(peer)});
    }
    std::vector<CorruptionCount> counts;
    counts.reserve(corrupted_sources_.size());
    for (const auto& [source, n] : corrupted_sources_) counts.push_back({source, rank, n});
    std::string packed;
    pack(packed, std::vector<RankTotals>{{seconds(timed), operations}});
    pack(packed, flows);
    pack(packed, counts);
    pack(packed, corruptions_);
    return packed;
}

void report_rows(Session& session, const Measurement& measurement, const Tally& tally,
                 const std::vector<std::string>& packed, const Json& params) {
    const GatheredResults results(session, tally, packed);
    results.write_corruptions(measurement, params);
    results.write_rows(measurement, params);
}

void report(Session& session, const Measurement& measurement, Json params, Tally& tally,
            const Passes& passes) {
    merge(session, tally.latency);
    const std::vector<std::string> packed = session.gather(tally.packed(session.rank()));
    if (session.rank() != 0) return;
    const GatheredResults results(session, tally, packed);
    params["iterations"] = passes.messages;
    const auto emit = [&](const char* metric, const Summary& summary,
                          std::span<const double> samples = {}) {
        session.sink.measurement(measurement, metric, {}, params, summary, samples);
    };
    const std::vector<double> times = results.times(), bandwidths = results.bandwidths();
    results.write_corruptions(measurement, params);
    results.write_rows(measurement, params);
    emit("bandwidth", summarize(passes.bandwidth));
    emit("client_bandwidth", summarize(bandwidths));
    emit("rate", summarize(passes.rate));
    emit("latency", tally.latency.summary());
    if (!one_sided(tally.op)) emit("half_round_trip", halved(tally.latency.summary()));
    emit("time", summarize(times), times);
    emit("wall_time", single(passes.wall));
    emit("bytes", single(passes.bytes));
    emit("corrupted", single(passes.corrupted));
}

}  // namespace assay::network
