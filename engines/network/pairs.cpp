// network.pairs: the given pairs one after the other, while all other ranks are silent. It shows
// the bandwidth of a suspect pair without competing traffic: a pair that stays slow has a hardware
// fault; a pair that becomes fast suffered from congestion.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/text.hpp"
#include "network/exchange.hpp"
#include "network/group.hpp"
#include "network/measurements.hpp"
#include "network/results.hpp"

namespace assay::network {
namespace {

// Long compared to the time in which a shaper's bucket or a switch's buffer is filled.
constexpr double pair_burst_seconds = 0.2;
constexpr double pair_seconds = 1.0;  // no repeat of a pair starts after this time
constexpr std::size_t ping_pong_bytes = 8;
constexpr int ping_pong_count = 20;

using Pair = std::pair<int, int>;

Pair read_pair(const std::string& text, int ranks) {
    int from = -1, to = -1;
    const char* const end = text.data() + text.size();
    const auto [dash, first] = std::from_chars(text.data(), end, from);
    const bool separated = first == std::errc() && dash != end && *dash == '-';
    const auto [rest, second] = separated
                                    ? std::from_chars(dash + 1, end, to)
                                    : std::from_chars_result{dash, std::errc::invalid_argument};
    if (second != std::errc() || rest != end)
        throw Error(fmt::format("--pairs: '{}' is not a pair of ranks", text),
                    "give from-to, e.g. 0-3,3-0");
    if (from == to || std::min(from, to) < 0 || std::max(from, to) >= ranks)
        throw Error(
            fmt::format("--pairs: {} is not a pair of different ranks below {}", text, ranks),
            "give from-to, e.g. 0-3,3-0");
    return {from, to};
}

std::vector<Pair> read_pairs(const std::string& text, int ranks) {
    std::vector<Pair> pairs;
    for (const std::string& pair : split(text, ',')) pairs.push_back(read_pair(pair, ranks));
    return pairs;
}

// Bursts of one pair. Every rank takes part, but the others only in the barriers.
class IsolatedPair {
public:
    IsolatedPair(Session& session, Exchange& exchange, Burst burst, Round round)
        : session_(session), exchange_(exchange), burst_(burst), round_(std::move(round)) {}

    // Runs a burst. Returns the seconds of its timed part, equal on every rank.
    double run(int window) {
        burst_.window = window;
        burst_.first_message = next_message_;
        next_message_ += static_cast<std::uint64_t>(window);
        const Outcome outcome = exchange_.run(burst_, round_, latency);
        // The ranks outside the pair contribute zeros.
        double agreed[] = {seconds(outcome.elapsed), static_cast<double>(outcome.corrupted)};
        session_.max(agreed);
        corrupted += agreed[1];
        verified_bytes = static_cast<double>(burst_.size) * (window - agreed[1]);
        if (outcome.interrupted) throw Error("interrupted", "the results so far are kept");
        return agreed[0];
    }

    Histogram latency;
    double corrupted = 0, verified_bytes = 0;

private:
    Session& session_;
    Exchange& exchange_;
    Burst burst_;
    Round round_;
    std::uint64_t next_message_ = 0;
};

// Half round trips of the pair, which its source measures; the result is equal on every rank.
Summary measure_half_round_trips(Session& session, Exchange& exchange, const Round& round) {
    IsolatedPair ping_pong(session, exchange, {Op::request, ping_pong_bytes, 0, 1, 0}, round);
    ping_pong.run(1);
    ping_pong.latency.clear();
    ping_pong.run(ping_pong_count);
    merge(session, ping_pong.latency);
    return halved(ping_pong.latency.summary());
}

void measure(Session& session, Exchange& exchange, const Options& options, const Pair& pair,
             std::size_t memory, double pair_budget) {
    const Nanoseconds begin = session.transport.clock();
    const auto size = static_cast<std::size_t>(options.integer("size"));
    const int inflight = static_cast<int>(options.integer("nflight"));
    const Round round = Schedule::listed({pair}).round(0, session.rank());
    const Summary latency = measure_half_round_trips(session, exchange, round);
    IsolatedPair stream(session, exchange, {Op::stream, size, 0, inflight, 0}, round);
    stream.run(1);
    const double message_seconds = std::max(stream.run(inflight) / inflight, 1e-9);
    const std::size_t max_messages = memory / stride(size);
    const bool simulated = session.transport.simulated();
    const int longest_burst = simulated
                                  ? simulated_window(latency.median, message_seconds, inflight)
                                  : max_window(false, inflight);
    const double longest_window =
        std::min(static_cast<double>(max_messages), static_cast<double>(longest_burst));
    int window = std::max(
        inflight, static_cast<int>(std::min(pair_burst_seconds / message_seconds, longest_window)));
    std::vector<double> bandwidths;
    double elapsed = 0;
    std::int64_t messages = 0;
    double pair_time[] = {0};  // seconds of this pair so far, by rank 0's clock
    for (std::int64_t i = 0;
         i < options.integer("repeats") && elapsed < pair_seconds &&
         (i == 0 || pair_budget <= 0 || pair_time[0] + pair_burst_seconds < pair_budget);
         ++i) {
        session.expect(message_seconds * window);
        const double duration = stream.run(window);
        bandwidths.push_back(stream.verified_bytes / duration);
        elapsed += duration;
        messages += window;
        if (session.rank() == 0) pair_time[0] = seconds(session.transport.clock() - begin);
        session.max(pair_time);
        // The first messages may have been unusually fast (a shaper's bucket, a cache), so the
        // window follows the time of whole bursts.
        window =
            std::max(inflight, static_cast<int>(std::min({pair_burst_seconds / duration * window,
                                                          longest_window, 4.0 * window})));
    }
    if (session.rank() != 0) return;
    const Subject subject{.host = session.label(pair.first), .peer = session.label(pair.second)};
    const Json params = {
        {"size", size}, {"op", "send"}, {"inflight", inflight}, {"iterations", messages}};
    session.sink.measurement(pairs, "bandwidth", subject, params, summarize(bandwidths),
                             bandwidths);
    session.sink.measurement(pairs, "latency", subject,
                             {{"size", ping_pong_bytes}, {"op", "send"}, {"inflight", 1}}, latency);
    session.sink.measurement(pairs, "corrupted", subject, params,
                             summarize({&stream.corrupted, 1}));
}

}  // namespace

void detail::run_pairs(const Options& options, Bench& bench) {
    run_group(options, bench, [&](Session& session) {
        const std::vector<Pair> listed = read_pairs(options.text("pairs"), session.size());
        const auto size = static_cast<std::size_t>(options.integer("size"));
        const double minimum = 2.0 * static_cast<double>(options.integer("nflight")) *
                               static_cast<double>(stride(size));
        const double granted =
            session.memory(minimum, static_cast<double>(options.integer("memory")),
                           fmt::format("messages of {} bytes", size));
        const auto memory = static_cast<std::size_t>(std::max(minimum, granted) / 2);
        Exchange exchange(session, memory, false);
        const double pair_budget =
            options.real("budget") / static_cast<double>(std::max<std::size_t>(1, listed.size()));
        for (std::size_t i = 0; i < listed.size(); ++i) {
            const double done = static_cast<double>(i) / static_cast<double>(listed.size());
            session.progress(done,
                             fmt::format("{} to {}", session.label(listed[i].first),
                                         session.label(listed[i].second)),
                             -1);
            measure(session, exchange, options, listed[i], memory, pair_budget);
        }
    });
}

}  // namespace assay::network
