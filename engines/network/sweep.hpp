// The sweep over sizes and operations that client/server and all-to-all share: probe, plan, then
// for each size and operation as many passes (all rounds once) as the budget, the confidence target
// or the number of iterations asks for. Each is reported as soon as it is done, so that an
// interrupted sweep keeps it.
#pragma once

#include <functional>
#include <vector>

#include "core/options.hpp"
#include "network/exchange.hpp"
#include "network/planner.hpp"
#include "network/results.hpp"
#include "network/schedule.hpp"
#include "network/session.hpp"

namespace assay::network {

struct SweepOptions {
    std::vector<std::size_t> sizes;
    std::vector<Op> operations;
    int inflight;
    std::int64_t iterations;
    double budget, confidence;
    std::size_t memory;
    int rounds;  // 0: as many as the budget allows
    bool verify;
};

// `sends` is what "send" means here. Throws Error for a size, an operation or a number that makes
// no sense.
SweepOptions read_sweep(const Options& options, Op sends);

// The pattern of an operation, and how many of its flows one initiator has.
struct Pattern {
    std::function<const Schedule&(Op)> schedule;
    int lanes = 1;            // at most, at one rank and direction
    int lanes_here = 1;       // the same, at this rank
    int initiated_lanes = 1;  // that share one initiator's flight
    Json params;              // what the records say of it
};

class Sweep {
public:
    Sweep(Session& session, const Measurement& measurement, SweepOptions options, Pattern pattern);

    // Collective. False when a signal ended it early; throws Error when the memory does not
    // suffice.
    bool run();

    // Payload that this rank has sent to other hosts so far, warm-up included.
    std::uint64_t bytes_sent_to_other_hosts() const { return sent_away_; }

private:
    struct Pass {
        double timed = 0;    // seconds, of the rank that took longest
        double longest = 0;  // seconds, of the longest burst anywhere
        double bytes = 0, operations = 0, corrupted = 0;
        double elapsed = 0;  // seconds since the sweep began, by rank 0's clock
        bool interrupted = false;
    };

    std::size_t find_place();
    void probe();
    bool measure(std::size_t item, Op op, std::size_t size);
    Pass pass(Tally& tally, int window, int echoes);
    Outcome burst(Op op, std::size_t size, int window, int inflight, int round, Histogram& latency);
    Outcome echo(Tally& tally, int messages, int round);
    static int echoes(Op op, int window, bool first);
    void tell_progress(std::size_t item, Op op, std::size_t size);

    Session& session_;
    const Measurement& measurement_;
    SweepOptions options_;
    Pattern pattern_;
    Work work_;
    std::unique_ptr<Planner> planner_;
    std::unique_ptr<Exchange> exchange_;
    std::vector<int> rounds_;
    std::uint64_t next_message_ = 0, sent_away_ = 0;
    Nanoseconds begin_ = 0;
};

// A sweep with what is told of its hosts before and after it.
void run_sweep(Session& session, const Measurement& measurement, SweepOptions options,
               Pattern pattern);

}  // namespace assay::network
