// Rounds of experiments, one after the other, as a conductor on standard input asks for them.
//
// Which round comes next depends on what the last ones have shown, and starting an MPI job takes
// seconds: so the job stays, says `ready`, and waits for a line (round.hpp). It ends at the end of
// its input. By hand:
//
//     mpirun -np 4 assay-probe-openmpi run network.saturation <rounds.jsonl
//
// The same binary runs in SimGrid, where the whole conversation takes place at one moment of
// simulated time.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.hpp"
#include "network/group.hpp"
#include "network/measurements.hpp"
#include "network/saturation/echo.hpp"
#include "network/saturation/flows.hpp"
#include "network/wire.hpp"

namespace assay::network {
namespace {

using namespace saturate;

// Lines from standard input, which only rank 0 has.
class Input {
public:
    // The next line, empty at the end. An empty line is none.
    std::string next() {
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

private:
    std::string text_;
};

class Loop {
public:
    Loop(Session& session, int inflight) : session_(session), inflight_(inflight) {}

    void run() {
        for (std::string line; !(line = next()).empty();) {
            const Round round = read_round(line, session_.size());
            const bool going = round.kind == Round::Kind::echo ? echo(round) : flows(round);
            if (!going) throw Error("interrupted", "what was measured before has been kept");
        }
    }

    std::uint64_t sent_away() const { return sent_away_; }

private:
    std::string next() {
        std::string line;
        if (session_.rank() == 0) {
            session_.sink.ready("for the next round");
            line = input_.next();
        }
        session_.guarded("waits for the next round", 0,
                         [&] { session_.transport.broadcast(line); });
        return line;
    }

    bool echo(const Round& round) {
        std::vector<Echo> echoes;
        const bool going = run_echoes(session_, round, echoes, sent_away_);
        for (const Echo& one : echoes) {
            const auto [first, second] = round.pairs[one.pair];
            Json params = round.params;
            params["size"] = one.size;
            session_.sink.measurement(
                saturation, "latency",
                {.host = session_.label(first), .peer = session_.label(second)}, params,
                summarize(one.samples), one.samples);
        }
        return going;
    }

    bool flows(const Round& round) {
        const double each = static_cast<double>((round.size + 63) / 64 * 64);
        const double lanes = static_cast<double>(round.leaving(session_.rank()).size() +
                                                 round.arriving(session_.rank()).size() *
                                                     static_cast<std::size_t>(inflight_));
        session_.memory(lanes * each, 0, fmt::format("messages of {} bytes", round.size));
        const Outcome outcome = run_flows(session_, round, inflight_);
        sent_away_ += outcome.sent_away;
        Json mine = Json::array();
        for (const Carried& one : outcome.carried)
            mine.push_back({one.flow, one.rate, one.messages, one.sliced});
        const std::vector<std::string> all = session_.gather(mine.dump());
        if (session_.rank() == 0) tell(round, outcome.window, all);
        return !outcome.interrupted;
    }

    // On rank 0: one record for the whole round.
    void tell(const Round& round, double window, const std::vector<std::string>& parts) {
        FlowRates rates(round.pairs.size());
        Json params = round.params;
        params["size"] = round.size;
        params["window_s"] = window;
        std::uint64_t messages = 0;
        for (const std::string& part : parts)
            for (const Json& one : Json::parse(part)) {
                const std::size_t flow = one[0];
                rates.values[flow] = one[1];
                messages += one[2].get<std::uint64_t>();
                rates.slices[flow] = one[3].get<std::vector<double>>();
            }
        params["messages"] = messages;
        for (const auto& [source, target] : round.pairs) {
            rates.sources.push_back(session_.label(source));
            rates.targets.push_back(session_.label(target));
        }
        if (!(window > 0)) rates.values.clear(), rates.slices.clear();
        session_.sink.flows(saturation, "rate", params, rates);
    }

    Session& session_;
    const int inflight_;
    Input input_;
    std::uint64_t sent_away_ = 0;
};

}  // namespace

void detail::run_saturation(const Options& options, Bench& bench) {
    run_group(options, bench, [&](Session& session) {
        report_context(session);
        Wire carried(session);
        Loop loop(session, static_cast<int>(options.integer("nflight")));
        loop.run();
        carried.report(loop.sent_away());
    });
}

}  // namespace assay::network
