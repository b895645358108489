// network.one_way: the bandwidth of each direction of each rank by itself.
//
// An all-to-all loads both directions of every host at once, so a limit on their sum (a half-duplex
// link, a slow PCIe slot, a limiter) hides a side that is slower than the other. Here a rank only
// sends or only receives, to or from one other. All pairs of a round run at the same time, since no
// two share a host's direction; partners are near in the order of ranks, so that few of them meet
// on the links between groups.
#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "network/exchange.hpp"
#include "network/group.hpp"
#include "network/measurements.hpp"
#include "network/results.hpp"
#include "network/wire.hpp"

namespace assay::network {
namespace {

// Long compared to the time in which a shaper's bucket or a switch's buffer is filled.
constexpr double burst_seconds = 0.2;
constexpr double max_growth = 4;  // of a window, from one burst of a round to the next

// Rounds of disjoint pairs, each pair in both directions (in different rounds).
std::vector<std::vector<RankPair>> make_rounds(const Session& session, int servers) {
    const auto edges =
        servers > 0 ? client_edges(session.size(), servers) : near_edges(session.size());
    std::vector<RankPair> pairs_between_hosts;
    for (const auto& [a, b] : edges)
        if (session.host(a) != session.host(b)) pairs_between_hosts.emplace_back(a, b);
    std::vector<std::vector<RankPair>> rounds;
    for (std::vector<RankPair>& round : disjoint_rounds(pairs_between_hosts)) {
        rounds.push_back(round);
        for (auto& [a, b] : round) std::swap(a, b);
        rounds.push_back(std::move(round));
    }
    return rounds;
}

class OneWay {
public:
    OneWay(Session& session, const Options& options)
        : session_(session),
          size_(static_cast<std::size_t>(options.integer("size"))),
          inflight_(static_cast<int>(options.integer("nflight"))),
          passes_(options.integer("repeats")),
          budget_(options.real("budget")),
          rounds_(make_rounds(session, static_cast<int>(options.integer("servers")))),
          schedule_(Schedule::matched(rounds_)),
          windows_(rounds_.size(), 0),
          tally_(Op::stream, size_) {
        const double minimum = 2.0 * inflight_ * static_cast<double>(stride(size_));
        const double requested = static_cast<double>(options.integer("memory"));
        const double granted =
            session.memory(minimum, requested, fmt::format("messages of {} bytes", size_));
        memory_ = static_cast<std::size_t>(std::max(minimum, granted) / 2);
    }

    // Returns false if a signal ended it early.
    bool run() {
        if (rounds_.empty())
            throw Error("all ranks are on one host, so that no network is between them",
                        "name at least two hosts");
        WireMonitor wire(session_, {{"during", one_way.name}}, WireMonitor::Detail::peers);
        Exchange exchange(session_, memory_, false);
        const Nanoseconds begin = session_.transport.clock();
        bool keep_going = true;
        for (std::int64_t pass = 0; keep_going && pass < passes_; ++pass)
            for (std::size_t round = 0; keep_going && round < rounds_.size(); ++round) {
                keep_going = burst(exchange, round);
                double elapsed[] = {
                    session_.rank() == 0 ? seconds(session_.transport.clock() - begin) : 0.0};
                session_.max(elapsed);
                const double done = static_cast<double>(bursts_) /
                                    static_cast<double>(rounds_.size()) /
                                    static_cast<double>(passes_);
                session_.progress(done, "one direction at a time", -1);
                if (budget_ > 0 && elapsed[0] > budget_) passes_ = 0;
            }
        if (interrupted_) return false;
        report();
        wire.report(bytes_sent_);
        return true;
    }

private:
    // One burst of a round. Before the first, an untimed burst of `inflight` messages shows how
    // many messages take burst_seconds.
    bool burst(Exchange& exchange, std::size_t round) {
        int& window = windows_[round];
        if (window == 0) {
            const double first = transfer(exchange, round, inflight_, false);
            window = session_.transport.simulated() ? simulated_burst(exchange, round, first)
                                                    : next_window(inflight_, first);
        }
        const double longest = interrupted_ ? 0 : transfer(exchange, round, window, true);
        if (!session_.transport.simulated()) window = next_window(window, longest);
        ++bursts_;
        return !interrupted_;
    }

    // The window of a simulated burst, after one of `inflight` messages took `first`.
    int simulated_burst(Exchange& exchange, std::size_t round, double first) {
        const double second = transfer(exchange, round, 2 * inflight_, false);
        const double message_seconds = std::max((second - first) / inflight_, 1e-9);
        const double latency = std::max(first - inflight_ * message_seconds, 0.0);
        const auto messages =
            static_cast<int>(std::min<std::size_t>(memory_ / stride(size_), 1 << 20));
        return std::max(inflight_,
                        std::min(messages, simulated_window(latency, message_seconds, inflight_)));
    }

    // Returns the seconds of the longest timed part, equal on every rank.
    double transfer(Exchange& exchange, std::size_t round, int window, bool is_timed) {
        const Burst burst{Op::stream, size_, window, inflight_, next_message_};
        next_message_ += static_cast<std::uint64_t>(window);
        const Round flows = schedule_.round(static_cast<int>(round), session_.rank());
        bytes_sent_ += flows.outgoing.size() * size_ * static_cast<std::uint64_t>(window);
        Outcome outcome = exchange.run(burst, flows, tally_.latency);
        interrupted_ = interrupted_ || outcome.interrupted;
        const double longest = outcome.longest;
        if (!is_timed) outcome.flows.clear();
        tally_.add(burst, outcome);
        session_.expect(2 * longest);
        return longest;
    }

    // The window that makes a burst about burst_seconds long, after one of `window` took `longest`.
    int next_window(int window, double longest) const {
        const double requested = burst_seconds / std::max(longest, 1e-9) * window;
        const std::size_t messages = memory_ / stride(size_);
        return std::max(inflight_,
                        static_cast<int>(std::min(
                            {requested, static_cast<double>(messages), max_growth * window})));
    }

    void report() {
        const std::vector<std::string> packed = session_.gather(tally_.packed(session_.rank()));
        double corrupted[] = {static_cast<double>(tally_.corrupted)};
        session_.sum(corrupted);
        if (session_.rank() != 0) return;
        const Json params = {{"size", size_}, {"op", "send"}, {"inflight", inflight_}};
        report_rows(session_, one_way, tally_, packed, params);
        session_.sink.measurement(one_way, "corrupted", {}, params, summarize(corrupted));
    }

    Session& session_;
    const std::size_t size_;
    const int inflight_;
    std::int64_t passes_, bursts_ = 0;
    const double budget_;
    const std::vector<std::vector<RankPair>> rounds_;
    const Schedule schedule_;
    std::vector<int> windows_;
    Tally tally_;
    std::size_t memory_ = 0;
    std::uint64_t next_message_ = 0, bytes_sent_ = 0;
    bool interrupted_ = false;
};

}  // namespace

void detail::run_one_way(const Options& options, Bench& bench) {
    run_group(options, bench, [&](Session& session) {
        if (!OneWay(session, options).run())
            throw Error("interrupted", "the results so far are kept");
    });
}

}  // namespace assay::network
