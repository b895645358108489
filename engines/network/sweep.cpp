// Probes, plans and runs a sweep (see sweep.hpp).
#include "network/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/text.hpp"
#include "network/wire.hpp"

namespace assay::network {
namespace {

// Large enough to fit the cost per byte, small enough for slow networks.
constexpr std::size_t max_probe_size = 64 << 10;
constexpr std::size_t max_size = 1 << 30;  // an MPI count is an int

std::vector<std::size_t> default_sizes() {
    std::vector<std::size_t> sizes;
    for (std::size_t size = 1; size <= (4 << 20); size *= 2) sizes.push_back(size);
    return sizes;
}

// `send` is the operation that "send" names.
Op read_operation(const std::string& text, Op send) {
    if (text == "send") return send;
    if (text == "put") return Op::put;
    if (text == "get") return Op::get;
    throw Error(fmt::format("unknown operation '{}' in --op", text),
                "choose one or more of send,put,get");
}

}  // namespace

SweepOptions parse_sweep(const Options& options, Op send) {
    SweepOptions sweep{};
    for (const std::int64_t size : options.integers("sizes"))
        sweep.sizes.push_back(static_cast<std::size_t>(size));
    if (sweep.sizes.empty()) sweep.sizes = default_sizes();
    for (const std::size_t size : sweep.sizes)
        if (size < 1 || size > max_size)
            throw Error(fmt::format("message size {} is out of bounds", size),
                        "choose sizes from 1 B to 1 GiB");
    for (const std::string& operation : split(options.text("op"), ','))
        sweep.operations.push_back(read_operation(operation, send));
    sweep.inflight = static_cast<int>(options.integer("nflight"));
    sweep.iterations = options.integer("repeats");
    sweep.budget = options.real("budget");
    sweep.confidence = options.real("confidence");
    sweep.memory = static_cast<std::size_t>(options.integer("memory"));
    sweep.verify = !options.flag("no_verify");
    return sweep;
}

Sweep::Sweep(Session& session, const Measurement& measurement, SweepOptions options,
             Pattern pattern)
    : session_(session),
      measurement_(measurement),
      options_(std::move(options)),
      pattern_(std::move(pattern)) {
    planner_input_ = {.sizes = options_.sizes,
                      .operations = static_cast<int>(options_.operations.size()),
                      .budget = options_.budget,
                      .confidence = options_.confidence,
                      .iterations = options_.iterations,
                      .smallest_window = (options_.inflight + pattern_.flows_per_initiator - 1) /
                                         pattern_.flows_per_initiator,
                      .max_flows = pattern_.max_flows,
                      .max_window = max_window(session.transport.simulated(), options_.inflight),
                      .simulated = session.transport.simulated()};
    if (options_.iterations > 0)
        planner_input_.smallest_window = static_cast<int>(
            std::min<std::int64_t>(planner_input_.smallest_window, options_.iterations));
    pattern_.params["inflight"] = options_.inflight;
    pattern_.params["verified"] = options_.verify;
}

// Bytes of message memory per direction: at least enough for `inflight`, more for longer bursts.
std::size_t Sweep::message_memory() {
    const std::size_t largest = *std::ranges::max_element(options_.sizes);
    const double minimum = planner_input_.smallest_window * static_cast<double>(stride(largest)) *
                           pattern_.local_flows;
    const double granted = session_.memory(
        2 * minimum, static_cast<double>(options_.memory),
        fmt::format("messages of {} bytes with {} in flight", largest, options_.inflight));
    planner_input_.memory = static_cast<std::size_t>(granted / 2);
    return std::max(static_cast<std::size_t>(minimum), planner_input_.memory);
}

Outcome Sweep::run_burst(Op op, std::size_t size, int window, int inflight, int round,
                         Histogram& latency) {
    const Burst burst{op, size, window, inflight, next_message_, options_.verify};
    const Round flows = pattern_.schedule(op).round(round, session_.rank());
    next_message_ += static_cast<std::uint64_t>(window);
    for (const Flow& flow : flows.outgoing)
        if (session_.host(flow.peer) != session_.host(session_.rank()))
            bytes_sent_off_host_ += size * static_cast<std::uint64_t>(window);
    return exchange_->run(burst, flows, latency);
}

// Measures latency for a stream. A stream's timing shows only the rate of arrival, so a few
// messages are sent one at a time in the same round, each acknowledged by its receiver. They count
// for latency and corruption only.
Outcome Sweep::measure_latency(Tally& tally, int messages, int round) {
    Outcome outcome = run_burst(Op::request, tally.size, messages, 1, round, tally.latency);
    outcome.flows.clear();
    outcome.elapsed = 0;
    outcome.operations = outcome.bytes = 0;
    return outcome;
}

// Runs all rounds once. The result is equal on every rank.
Sweep::Pass Sweep::run_pass(Tally& tally, int window, int latency_messages) {
    Outcome sum;
    double timed = 0, longest = 0;
    for (const int round : rounds_) {
        if (latency_messages > 0) {
            Outcome latency_outcome = measure_latency(tally, latency_messages, round);
            sum.corrupted += latency_outcome.corrupted;
            const bool interrupted = latency_outcome.interrupted;
            tally.add({Op::request, tally.size, latency_messages, 1, 0}, latency_outcome);
            if (interrupted) return {.interrupted = true};
        }
        Outcome outcome =
            run_burst(tally.op, tally.size, window, options_.inflight, round, tally.latency);
        timed += outcome.longest;
        sum.operations += outcome.operations;
        sum.bytes += outcome.bytes;
        sum.corrupted += outcome.corrupted;
        longest = std::max(longest, outcome.longest);
        const bool interrupted = outcome.interrupted;
        tally.add({tally.op, tally.size, window, options_.inflight, 0}, outcome);
        if (interrupted) return {.interrupted = true};
    }
    double now[] = {session_.rank() == 0 ? seconds(session_.transport.clock() - begin_) : 0.0};
    double totals[] = {static_cast<double>(sum.bytes), static_cast<double>(sum.operations),
                       static_cast<double>(sum.corrupted)};
    session_.max(now);
    session_.sum(totals);
    return {timed, longest, totals[0], totals[1], totals[2], now[0], false};
}

// Connects the pairs and measures messages of two sizes, to which the planner's linear cost models
// are fitted.
void Sweep::probe() {
    const int all_rounds = pattern_.schedule(options_.operations[0]).rounds();
    rounds_ = sample_rounds(all_rounds, 3);
    const auto [small, large] = std::ranges::minmax(options_.sizes);
    const std::size_t medium = std::max(small, std::min(large, max_probe_size));
    const int window = planner_input_.smallest_window;
    const double rounds = static_cast<double>(rounds_.size());
    double message_seconds[2] = {}, burst_seconds[2] = {};
    for (const std::size_t size : {small, small, medium}) {  // the first only sets up connections
        const int index = size == small ? 0 : 1;
        Tally tally(options_.operations[0], size);
        const Pass single = run_pass(tally, 1, 0), full = run_pass(tally, window, 0);
        message_seconds[index] = full.longest / window;
        burst_seconds[index] = (full.elapsed - single.elapsed) / rounds;
        if (full.interrupted || single.interrupted) return;
    }
    if (medium == small) {
        message_seconds[1] = message_seconds[0];
        burst_seconds[1] = burst_seconds[0];
    }
    const double x0 = static_cast<double>(small), x1 = static_cast<double>(medium);
    planner_ = std::make_unique<Planner>(
        planner_input_, LinearCost::from_points(x0, message_seconds[0], x1, message_seconds[1]),
        LinearCost::from_points(x0, burst_seconds[0], x1, burst_seconds[1]));
    rounds_ =
        sample_rounds(all_rounds, options_.rounds > 0 ? options_.rounds
                                                      : planner_->affordable_rounds(all_rounds));
    planner_->set_rounds(static_cast<int>(rounds_.size()));
    if (options_.iterations <= 0) leave_out_sizes();
    for (const Op op : options_.operations) {
        Tally warm_up(op, small);
        run_pass(warm_up, 1, 0);
    }
}

// Leaves out the largest sizes if the budget is too short for one pass of every size, and records
// that they are waived.
void Sweep::leave_out_sizes() {
    double elapsed[] = {session_.rank() == 0 ? seconds(session_.transport.clock() - begin_) : 0.0};
    session_.max(elapsed);
    const std::vector<std::size_t> dropped = planner_->drop_sizes(options_.budget - elapsed[0]);
    options_.sizes = planner_->sizes();
    if (session_.rank() != 0) return;
    for (const std::size_t size : dropped)
        for (const Op op : options_.operations)
            session_.sink.waived(measurement_, "bandwidth", {}, {{"size", size}, {"op", name(op)}},
                                 "left out: the time is too short for it");
}

// Messages per round whose latency is measured. If a burst is one message, latency is measured in
// the first pass only, because each latency message takes a whole round trip.
int Sweep::latency_messages(Op op, int window, bool first) {
    if (op != Op::stream || (window == 1 && !first)) return 0;
    return std::clamp(window / 4, 1, 32);
}

// Measures one size and operation; `item` is the number of this combination. Returns false after a
// signal.
bool Sweep::measure(std::size_t item, Op op, std::size_t size) {
    Tally tally(op, size);
    Passes passes;
    int window = planner_->window(size);
    double start[] = {session_.rank() == 0 ? seconds(session_.transport.clock() - begin_) : 0.0};
    session_.max(start);
    const double deadline = planner_->deadline(item, start[0]);
    bool interrupted = false;
    for (double previous = start[0];;) {
        if (options_.iterations > 0)
            window = static_cast<int>(
                std::min<std::int64_t>(window, options_.iterations - passes.messages));
        session_.expect(planner_->burst_seconds(size, window));
        const Pass result =
            run_pass(tally, window, latency_messages(op, window, passes.messages == 0));
        if ((interrupted = result.interrupted)) break;
        passes.messages += window;
        passes.bytes += result.bytes;
        passes.operations += result.operations;
        passes.corrupted += result.corrupted;
        passes.wall += result.timed;
        passes.bandwidth.push_back(result.bytes / result.timed);
        passes.rate.push_back(result.operations / result.timed);
        report_progress(item, op, size);
        const double duration = result.elapsed - previous;
        previous = result.elapsed;
        if (planner_->finished(passes.messages, passes.bandwidth)) break;
        if (options_.iterations <= 0 && result.elapsed + duration / 2 > deadline) break;
        window = planner_->next_window(size, window, result.longest);
    }
    if (interrupted) return false;
    Json params = {{"size", size}, {"op", name(op)}};
    params.update(pattern_.params);
    report(session_, measurement_, std::move(params), tally, passes);
    return true;
}

void Sweep::report_progress(std::size_t item, Op op, std::size_t size) {
    const double elapsed = seconds(session_.transport.clock() - begin_),
                 remaining = planner_->remaining(item + 1, elapsed);
    session_.progress(elapsed / (elapsed + remaining), fmt::format("{} {} B", name(op), size),
                      remaining);
}

bool Sweep::run() {
    const std::size_t memory = message_memory();
    begin_ = session_.transport.clock();
    exchange_ = std::make_unique<Exchange>(session_, memory,
                                           std::ranges::any_of(options_.operations, one_sided));
    probe();
    pattern_.params["peers"] = static_cast<int>(rounds_.size()) * pattern_.flows_per_initiator;
    bool keep_going = planner_ != nullptr;
    std::size_t item = 0;
    for (const std::size_t size : options_.sizes)
        for (const Op op : options_.operations)
            if (keep_going) keep_going = measure(item++, op, size);
    exchange_.reset();
    return keep_going;
}

void run_sweep(Session& session, const Measurement& measurement, SweepOptions options,
               Pattern pattern) {
    report_context(session);
    WireMonitor wire(session);
    Sweep sweep(session, measurement, std::move(options), std::move(pattern));
    const bool complete = sweep.run();
    wire.report(sweep.bytes_sent_off_host());
    if (!complete) throw Error("interrupted", "the results so far are kept");
}

}  // namespace assay::network
