// The sweep over message sizes and operations, shared by client/server and all-to-all. A probe
// measures the costs for the plan. Then each item (a size and an operation) has passes, which run
// all rounds once, until the budget, the confidence target or the number of iterations is reached.
// Each item is reported when it is done, so that an interrupted sweep keeps it.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/options.hpp"
#include "network/exchange.hpp"
#include "network/planner.hpp"
#include "network/results.hpp"
#include "network/schedule.hpp"
#include "network/session.hpp"

namespace assay::network {

struct SweepOptions {
    std::vector<std::size_t> sizes;  // bytes
    std::vector<Op> operations;
    int inflight;             // messages in flight at one initiator
    std::int64_t iterations;  // messages per flow and size; 0: as the budget allows
    double budget;            // seconds for the whole sweep; 0: no limit
    double confidence;        // relative half-width of the median's interval; 0: no such limit
    std::size_t memory;       // bytes for messages, per rank
    int rounds;               // 0: as many as the budget allows
    bool verify;
};

// `send` is the operation that "send" stands for in this measurement. Throws Error for an invalid
// size or operation.
SweepOptions parse_sweep(const Options& options, Op send);

// The schedule of each operation, and numbers of flows.
struct Pattern {
    std::function<const Schedule&(Op)> schedule;
    int max_flows = 1;            // the most at any rank in one direction
    int local_flows = 1;          // the most at this rank in one direction
    int flows_per_initiator = 1;  // that share one initiator's `inflight`
    Json params;                  // parameters for the records
};

class Sweep {
public:
    Sweep(Session& session, const Measurement& measurement, SweepOptions options, Pattern pattern);

    // Collective. Returns false if a signal ended it early; throws Error if memory is short.
    bool run();

    // Payload bytes that this rank has sent to other hosts so far, warm-up included.
    std::uint64_t bytes_sent_off_host() const { return bytes_sent_off_host_; }

private:
    // The totals of a pass over all ranks.
    struct Pass {
        double timed = 0;  // seconds from the first post to the last completion, summed over rounds
        double longest = 0;  // seconds of the longest burst on any rank
        double bytes = 0, operations = 0, corrupted = 0;
        double elapsed = 0;  // seconds since the sweep began, by rank 0's clock
        bool interrupted = false;
    };

    std::size_t message_memory();
    void probe();
    void leave_out_sizes();
    bool measure(std::size_t item, Op op, std::size_t size);
    Pass run_pass(Tally& tally, int window, int latency_messages);
    Outcome run_burst(Op op, std::size_t size, int window, int inflight, int round,
                      Histogram& latency);
    Outcome measure_latency(Tally& tally, int messages, int round);
    static int latency_messages(Op op, int window, bool first);
    void report_progress(std::size_t item, Op op, std::size_t size);

    Session& session_;
    const Measurement& measurement_;
    SweepOptions options_;
    Pattern pattern_;
    PlannerInput planner_input_;
    std::unique_ptr<Planner> planner_;
    std::unique_ptr<Exchange> exchange_;
    std::vector<int> rounds_;
    std::uint64_t next_message_ = 0, bytes_sent_off_host_ = 0;
    Nanoseconds begin_ = 0;
};

// Runs a sweep, with the contexts of the hosts before it and their port counters after it.
void run_sweep(Session& session, const Measurement& measurement, SweepOptions options,
               Pattern pattern);

}  // namespace assay::network
