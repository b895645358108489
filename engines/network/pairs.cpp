// Pairs one after the other, each alone while all others are silent: what a suspect pair can do
// when nothing competes with it. What stays slow here is hardware; what becomes fast was
// congestion.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/error.hpp"
#include "network/exchange.hpp"
#include "network/group.hpp"
#include "network/measurements.hpp"
#include "network/results.hpp"

namespace assay::network {
namespace {

constexpr double burst_seconds =
    0.2;                              // long against what a shaper or a buffer lets through at once
constexpr double pair_seconds = 1.0;  // for one pair; what repeats it has by then must do
constexpr std::size_t echo_bytes = 8;
constexpr int echoes = 20;

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
                    "write from-to: 0-3,3-0");
    if (from == to || std::min(from, to) < 0 || std::max(from, to) >= ranks)
        throw Error(
            fmt::format("--pairs: {} is not a pair of different ranks below {}", text, ranks),
            "write from-to: 0-3,3-0");
    return {from, to};
}

std::vector<Pair> read_pairs(const std::string& text, int ranks) {
    std::vector<Pair> pairs;
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t comma = std::min(text.find(',', at), text.size());
        pairs.push_back(read_pair(text.substr(at, comma - at), ranks));
        at = comma + 1;
    }
    return pairs;
}

// Bursts of one pair alone. Every rank takes part, most of them only in the barriers.
class Alone {
public:
    Alone(Session& session, Exchange& exchange, Burst burst, Round round)
        : session_(session), exchange_(exchange), burst_(burst), round_(std::move(round)) {}

    // Seconds that the burst took where it was timed, the same on every rank.
    double run(int window) {
        burst_.window = window;
        burst_.first = next_;
        next_ += static_cast<std::uint64_t>(window);
        const Outcome outcome = exchange_.run(burst_, round_, latency);
        double agreed[] = {seconds(outcome.elapsed), static_cast<double>(outcome.corrupted)};
        session_.max(agreed);
        corrupted += agreed[1];
        verified = static_cast<double>(burst_.size) * (window - agreed[1]);
        if (outcome.interrupted)
            throw Error("interrupted", "what was measured before has been kept");
        return agreed[0];
    }

    Histogram latency;
    double corrupted = 0, verified = 0;

private:
    Session& session_;
    Exchange& exchange_;
    Burst burst_;
    Round round_;
    std::uint64_t next_ = 0;
};

// Half round trips of the pair; only the source has them, and rank 0 tells.
Summary half_round_trips(Session& session, Exchange& exchange, const Round& round) {
    Alone echo(session, exchange, {Op::request, echo_bytes, 0, 1, 0}, round);
    echo.run(1);
    echo.latency.clear();
    echo.run(echoes);
    merge(session, echo.latency);
    return halved(echo.latency.summary());
}

void measure(Session& session, Exchange& exchange, const Options& options, const Pair& pair,
             std::size_t memory) {
    const auto size = static_cast<std::size_t>(options.integer("size"));
    const int inflight = static_cast<int>(options.integer("nflight"));
    const Round round = Schedule::listed({pair}).round(0, session.rank());
    const Summary latency = half_round_trips(session, exchange, round);
    Alone stream(session, exchange, {Op::stream, size, 0, inflight, 0}, round);
    stream.run(1);
    const double one = std::max(stream.run(inflight) / inflight, 1e-9);
    const double room = static_cast<double>(memory / stride(size));
    int window = std::max(inflight, static_cast<int>(std::min(burst_seconds / one, room)));
    std::vector<double> bandwidths;
    double spent = 0;
    std::int64_t messages = 0;
    for (std::int64_t i = 0; i < options.integer("repeats") && spent < pair_seconds; ++i) {
        session.expect(one * window);
        const double took = stream.run(window);
        bandwidths.push_back(stream.verified / took);
        spent += took;
        messages += window;
        // One message may have been a lucky one (a shaper's bucket, a cache): go by what bursts
        // take.
        window = std::max(
            inflight,
            static_cast<int>(std::min({burst_seconds / took * window, room, 4.0 * window})));
    }
    if (session.rank() != 0) return;
    const Subject subject{.host = session.label(pair.first), .peer = session.label(pair.second)};
    const Json params = {
        {"size", size}, {"op", "send"}, {"inflight", inflight}, {"iterations", messages}};
    session.sink.measurement(pairs, "bandwidth", subject, params, summarize(bandwidths),
                             bandwidths);
    session.sink.measurement(pairs, "latency", subject,
                             {{"size", echo_bytes}, {"op", "send"}, {"inflight", 1}}, latency);
    session.sink.measurement(pairs, "corrupted", subject, params,
                             summarize({&stream.corrupted, 1}));
}

}  // namespace

void detail::run_pairs(const Options& options, Bench& bench) {
    run_group(options, bench, [&](Session& session) {
        const std::vector<Pair> listed = read_pairs(options.text("pairs"), session.size());
        const auto size = static_cast<std::size_t>(options.integer("size"));
        const double least = 2.0 * static_cast<double>(options.integer("nflight")) *
                             static_cast<double>(stride(size));
        const double both = session.memory(least, static_cast<double>(options.integer("memory")),
                                           fmt::format("messages of {} bytes", size));
        const auto memory = static_cast<std::size_t>(std::max(least, both) / 2);
        Exchange exchange(session, memory, false);
        for (std::size_t i = 0; i < listed.size(); ++i) {
            const double done = static_cast<double>(i) / static_cast<double>(listed.size());
            session.progress(done,
                             fmt::format("{} to {}", session.label(listed[i].first),
                                         session.label(listed[i].second)),
                             -1);
            measure(session, exchange, options, listed[i], memory);
        }
    });
}

}  // namespace assay::network
