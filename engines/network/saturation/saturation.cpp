// network.saturation: rounds of experiments, read from standard input.
//
// The caller chooses each round from the results of earlier ones, and starting an MPI job takes
// seconds. So one job runs all rounds: before each it writes a `ready` record and waits for a line
// (round.hpp). It ends at the end of its input. By hand:
//
//     mpirun -np 4 assay-probe-openmpi run network.saturation <rounds.jsonl
//
// Without MPI the launcher passes the lines on; an empty one is the end.
//
// The same binary runs in SimGrid, where reading the rounds takes no simulated time.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

#include "core/error.hpp"
#include "network/group.hpp"
#include "network/measurements.hpp"
#include "network/saturation/calls.hpp"
#include "network/saturation/flows.hpp"
#include "network/saturation/ping_pong.hpp"
#include "network/wire.hpp"

namespace assay::network {
namespace {

using namespace saturate;

// Lines from standard input; only rank 0 reads it.
class Input {
public:
    // The next line that is not empty; an empty text at the end of the input, and after a signal.
    std::string next(Transport& transport) {
        if (!transport.has_launcher()) return next_of_stdin();
        for (;;) {
            if (std::optional<std::string> line = transport.launcher_line()) return *line;
            if (Session::interrupted()) return {};
            std::this_thread::sleep_for(poll_interval);
        }
    }

private:
    static constexpr std::chrono::microseconds poll_interval{200};

    std::string next_of_stdin() {
        for (;;) {
            if (const std::size_t end = text_.find('\n'); end != std::string::npos) {
                const std::string line = text_.substr(0, end);
                text_.erase(0, end + 1);
                if (!line.empty()) return line;
                continue;
            }
            char chunk[65536];
            const ssize_t n = read(STDIN_FILENO, chunk, sizeof chunk);
            if (n < 0 && errno == EINTR && !Session::interrupted()) continue;
            if (n < 0 && errno != EINTR)
                throw Error(fmt::format("cannot read the rounds: {}", std::strerror(errno)));
            if (n <= 0) return std::exchange(text_, {});
            text_.append(chunk, static_cast<std::size_t>(n));
        }
    }

    std::string text_;
};

// Reads, runs and records one round after the other.
class RoundLoop {
public:
    RoundLoop(Session& session, int inflight) : session_(session), inflight_(inflight) {}

    void run() {
        for (std::string line; !(line = next_line()).empty();) {
            const Round round = read_round(line, session_.size());
            if (!measure(round)) throw Error("interrupted", "the results so far are kept");
        }
    }

    std::uint64_t bytes_sent_off_host() const { return bytes_sent_off_host_; }

private:
    std::string next_line() {
        std::string line;
        if (session_.rank() == 0) {
            session_.sink.ready("for the next round");
            line = input_.next(session_.transport);
        }
        session_.guarded("waits for the next round", 0,
                         [&] { session_.transport.broadcast(line); });
        return line;
    }

    // Returns false after a signal.
    bool measure(const Round& round) {
        switch (round.kind) {
            case Round::Kind::ping_pong: return ping_pong(round);
            case Round::Kind::calls: return calls(round);
            case Round::Kind::flows: break;
        }
        return flows(round);
    }

    bool calls(const Round& round) {
        std::vector<CallTimes> times;
        const bool complete = run_calls(session_, round, times, bytes_sent_off_host_);
        for (const CallTimes& pair : times) {
            const auto [first, second] = round.pairs[pair.pair];
            Json params = round.params;
            params["size"] = pair.size;
            params["pause_s"] = pair.pause;
            for (const auto& [metric, samples] :
                 {std::pair{"send_call", &pair.send}, std::pair{"isend_call", &pair.isend},
                  std::pair{"receive_call", &pair.receive}})
                if (!samples->empty())
                    session_.sink.measurement(
                        saturation, metric,
                        {.host = session_.label(first), .peer = session_.label(second)}, params,
                        summarize(*samples), *samples);
        }
        return complete;
    }

    bool ping_pong(const Round& round) {
        std::vector<PingPongTimes> times;
        const bool complete = run_ping_pong(session_, round, times, bytes_sent_off_host_);
        for (const PingPongTimes& pair : times) {
            const auto [first, second] = round.pairs[pair.pair];
            Json params = round.params;
            params["size"] = pair.size;
            session_.sink.measurement(
                saturation, "latency",
                {.host = session_.label(first), .peer = session_.label(second)}, params,
                summarize(pair.samples), pair.samples);
        }
        return complete;
    }

    bool flows(const Round& round) {
        const std::size_t cache_lines = (round.size + 63) / 64;
        const double message = static_cast<double>(cache_lines * 64);
        const double buffers = static_cast<double>(round.outgoing(session_.rank()).size() +
                                                   round.incoming(session_.rank()).size() *
                                                       static_cast<std::size_t>(inflight_));
        session_.memory(buffers * message, 0, fmt::format("messages of {} bytes", round.size));
        const Outcome outcome = run_flows(session_, round, inflight_);
        bytes_sent_off_host_ += outcome.bytes_sent_off_host;
        Json own_results = Json::array();
        for (const FlowRate& flow : outcome.flows)
            own_results.push_back({flow.flow, flow.rate, flow.messages, flow.slice_rates});
        const std::vector<std::string> all = session_.gather(own_results.dump());
        if (session_.rank() == 0) record_flows(round, outcome.window, all);
        return !outcome.interrupted;
    }

    // On rank 0: writes one record for the whole round.
    void record_flows(const Round& round, double window, const std::vector<std::string>& parts) {
        FlowRates rates(round.pairs.size());
        Json params = round.params;
        params["size"] = round.size;
        params["window_s"] = window;
        std::uint64_t messages = 0;
        for (const std::string& part : parts)
            for (const Json& result : Json::parse(part)) {
                const std::size_t flow = result[0];
                rates.values[flow] = result[1];
                messages += result[2].get<std::uint64_t>();
                rates.slices[flow] = result[3].get<std::vector<double>>();
            }
        params["messages"] = messages;
        for (const auto& [source, target] : round.pairs) {
            rates.sources.push_back(session_.label(source));
            rates.targets.push_back(session_.label(target));
        }
        if (!(window > 0)) {
            rates.values.clear();
            rates.slices.clear();
        }
        session_.sink.flows(saturation, "rate", params, rates);
    }

    Session& session_;
    const int inflight_;
    Input input_;
    std::uint64_t bytes_sent_off_host_ = 0;
};

}  // namespace

void detail::run_saturation(const Options& options, Bench& bench) {
    run_group(options, bench, [&](Session& session) {
        report_context(session);
        WireMonitor monitor(session);
        RoundLoop rounds(session, static_cast<int>(options.integer("nflight")));
        rounds.run();
        monitor.report(rounds.bytes_sent_off_host());
    });
}

}  // namespace assay::network
