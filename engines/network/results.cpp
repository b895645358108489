#include "network/results.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace assay::network {
namespace {

constexpr std::size_t located_at_most = 64;  // corruption records of a rank, size and operation

struct FlowFigure {
    int source, destination;
    double bandwidth;  // B/s, median over the bursts, as if all had been right
    std::uint64_t messages;
};

struct WrongCount {
    int source, destination;
    std::uint64_t messages;
};

struct Head {
    double timed;  // seconds
    std::uint64_t operations;
};

// What a rank sends to rank 0: plain structs behind their count. All ranks run the same executable.
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

struct Part {
    Head head;
    std::vector<FlowFigure> flows;
    std::vector<WrongCount> counts;
    std::vector<Wrong> wrong;
};

Part unpack_part(std::string_view packed) {
    Part part;
    part.head = unpack<Head>(packed).front();
    part.flows = unpack<FlowFigure>(packed);
    part.counts = unpack<WrongCount>(packed);
    part.wrong = unpack<Wrong>(packed);
    return part;
}

using Pair = std::pair<int, int>;

// The rows of the pair matrix, and what each timing rank received of its own flows.
class Collected {
public:
    Collected(Session& session, const Tally& tally, const std::vector<std::string>& packed)
        : session_(session), size_(static_cast<double>(tally.size)) {
        for (const std::string& one : packed) parts_.push_back(unpack_part(one));
        for (const Part& part : parts_)
            for (const WrongCount& count : part.counts)
                wrong_[{count.source, count.destination}] += count.messages;
    }

    void corruptions(const Measurement& measurement, const Json& params) const {
        for (std::size_t rank = 0; rank < parts_.size(); ++rank)
            for (const Wrong& wrong : parts_[rank].wrong)
                session_.sink.corruption(measurement,
                                         {.host = session_.label(wrong.source),
                                          .peer = session_.label(static_cast<int>(rank))},
                                         params, wrong.message, wrong.offset, wrong.expected,
                                         wrong.observed);
    }

    void rows(const Measurement& measurement, const Json& params) const {
        std::map<int, std::map<int, double>> matrix;
        for (const Part& part : parts_)
            for (const FlowFigure& flow : part.flows)
                matrix[flow.source][flow.destination] = flow.bandwidth * right(flow);
        for (const auto& [source, row] : matrix) {
            std::vector<std::string> peers;
            std::vector<double> values;
            for (const auto& [destination, bandwidth] : row) {
                peers.push_back(session_.label(destination));
                values.push_back(bandwidth);
            }
            session_.sink.pairs(measurement, "bandwidth", {.host = session_.label(source)}, params,
                                peers, values);
        }
    }

    // Of every rank that timed something, in the order of ranks.
    std::vector<double> times() const {
        std::vector<double> values;
        for (const Part& part : parts_)
            if (part.head.timed > 0) values.push_back(part.head.timed);
        return values;
    }
    std::vector<double> bandwidths() const {
        std::vector<double> values;
        for (const Part& part : parts_) {
            if (part.head.timed <= 0) continue;
            double messages = static_cast<double>(part.head.operations);
            for (const FlowFigure& flow : part.flows)
                messages -= static_cast<double>(wrong_messages(flow));
            values.push_back(messages * size_ / part.head.timed);
        }
        return values;
    }

private:
    std::uint64_t wrong_messages(const FlowFigure& flow) const {
        const auto found = wrong_.find({flow.source, flow.destination});
        return found == wrong_.end() ? 0 : found->second;
    }
    double right(const FlowFigure& flow) const {
        return 1 - static_cast<double>(wrong_messages(flow)) / static_cast<double>(flow.messages);
    }

    Session& session_;
    double size_;
    std::vector<Part> parts_;
    std::map<Pair, std::uint64_t> wrong_;
};

Summary single(double value) { return summarize({&value, 1}); }

}  // namespace

void merge(Session& session, Histogram& latency) {
    const auto mine = latency.counts();
    std::vector<double> counts(mine.begin(), mine.end());
    session.sum(counts);
    const std::vector<std::uint64_t> all(counts.begin(), counts.end());
    latency.clear();
    latency.merge(all);
}

Summary halved(Summary s) {
    for (double* value : {&s.median, &s.mad, &s.min, &s.max, &s.p5, &s.p95, &s.p99}) *value /= 2;
    return s;
}

void Tally::add(const Burst& burst, Outcome outcome) {
    timed += outcome.elapsed;
    operations += outcome.operations;
    bytes += outcome.bytes;
    corrupted += outcome.corrupted;
    const double flow_bytes = static_cast<double>(burst.size) * burst.window;
    for (const FlowTime& flow : outcome.flows) {
        flows_[flow.peer].push_back(flow_bytes / seconds(std::max<Nanoseconds>(flow.busy, 1)));
        messages_[flow.peer] += static_cast<std::uint64_t>(burst.window);
    }
    for (const int source : outcome.wrong_from) ++wrong_from_[source];
    for (const Wrong& wrong : outcome.wrong)
        if (wrong_.size() < located_at_most) wrong_.push_back(wrong);
}

std::string Tally::packed(int rank) const {
    std::vector<FlowFigure> flows;
    for (const auto& [peer, bandwidths] : flows_) {
        const double median = summarize(bandwidths).median;
        const bool receiving = timed_by_receiver(op);
        flows.push_back(
            {receiving ? peer : rank, receiving ? rank : peer, median, messages_.at(peer)});
    }
    std::vector<WrongCount> counts;
    for (const auto& [source, n] : wrong_from_) counts.push_back({source, rank, n});
    std::string packed;
    pack(packed, std::vector<Head>{{seconds(timed), operations}});
    pack(packed, flows);
    pack(packed, counts);
    pack(packed, wrong_);
    return packed;
}

void report(Session& session, const Measurement& measurement, Json params, Tally& tally,
            const Passes& passes) {
    merge(session, tally.latency);
    const std::vector<std::string> packed = session.gather(tally.packed(session.rank()));
    if (session.rank() != 0) return;
    const Collected collected(session, tally, packed);
    params["iterations"] = passes.messages;
    const auto emit = [&](const char* metric, const Summary& summary,
                          std::span<const double> samples = {}) {
        session.sink.measurement(measurement, metric, {}, params, summary, samples);
    };
    const std::vector<double> times = collected.times(), bandwidths = collected.bandwidths();
    collected.corruptions(measurement, params);
    collected.rows(measurement, params);
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
