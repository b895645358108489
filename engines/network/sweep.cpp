#include "network/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "network/wire.hpp"

namespace assay::network {
namespace {

constexpr std::size_t probe_size_most =
    64 << 10;  // large enough to tell the slope, cheap on slow networks
constexpr std::size_t size_most = 1 << 30;  // MPI counts bytes in int

std::vector<std::size_t> default_sizes() {
    std::vector<std::size_t> sizes;
    for (std::size_t size = 1; size <= (4 << 20); size *= 2) sizes.push_back(size);
    return sizes;
}

Op read_operation(const std::string& word, Op sends) {
    if (word == "send") return sends;
    if (word == "put") return Op::put;
    if (word == "get") return Op::get;
    throw Error(fmt::format("unknown operation '{}' in --op", word), "one or more of send,put,get");
}

std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> parts;
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t comma = std::min(text.find(',', at), text.size());
        parts.push_back(text.substr(at, comma - at));
        at = comma + 1;
    }
    return parts;
}

}  // namespace

SweepOptions read_sweep(const Options& options, Op sends) {
    SweepOptions sweep{};
    for (const std::int64_t size : options.integers("sizes"))
        sweep.sizes.push_back(static_cast<std::size_t>(size));
    if (sweep.sizes.empty()) sweep.sizes = default_sizes();
    for (const std::size_t size : sweep.sizes)
        if (size < 1 || size > size_most)
            throw Error(fmt::format("a message of {} bytes cannot be measured", size),
                        "sizes from 1 B to 1 GiB");
    for (const std::string& word : split(options.text("op")))
        sweep.operations.push_back(read_operation(word, sends));
    sweep.inflight = static_cast<int>(options.integer("nflight"));
    sweep.iterations = options.integer("niters");
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
    work_ = {.sizes = options_.sizes,
             .operations = static_cast<int>(options_.operations.size()),
             .budget = options_.budget,
             .confidence = options_.confidence,
             .iterations = options_.iterations,
             .smallest_window =
                 (options_.inflight + pattern_.initiated_lanes - 1) / pattern_.initiated_lanes,
             .lanes = pattern_.lanes};
    if (options_.iterations > 0)
        work_.smallest_window =
            static_cast<int>(std::min<std::int64_t>(work_.smallest_window, options_.iterations));
    pattern_.params["inflight"] = options_.inflight;
    pattern_.params["verified"] = options_.verify;
}

// Bytes for the messages of one direction: what the flight needs, or more so that bursts can last.
std::size_t Sweep::find_place() {
    const std::size_t largest = *std::ranges::max_element(options_.sizes);
    const double least =
        work_.smallest_window * static_cast<double>(stride(largest)) * pattern_.lanes_here;
    const double both = session_.memory(
        2 * least, static_cast<double>(options_.memory),
        fmt::format("messages of {} bytes with {} in flight", largest, options_.inflight));
    work_.memory = static_cast<std::size_t>(both / 2);
    return std::max(static_cast<std::size_t>(least), work_.memory);
}

Outcome Sweep::burst(Op op, std::size_t size, int window, int inflight, int round,
                     Histogram& latency) {
    const Burst burst{op, size, window, inflight, next_message_, options_.verify};
    const Round flows = pattern_.schedule(op).round(round, session_.rank());
    next_message_ += static_cast<std::uint64_t>(window);
    for (const Lane& lane : flows.out)
        if (session_.host(lane.peer) != session_.host(session_.rank()))
            sent_away_ += size * static_cast<std::uint64_t>(window);
    return exchange_->run(burst, flows, latency);
}

// A stream tells how often messages land, not how long one takes. That is asked of a few, one after
// the other in the same round, each answered by its receiver. They count for the latency, and for
// corruption.
Outcome Sweep::echo(Tally& tally, int messages, int round) {
    Outcome outcome = burst(Op::request, tally.size, messages, 1, round, tally.latency);
    outcome.flows.clear();
    outcome.elapsed = 0;
    outcome.operations = outcome.bytes = 0;
    return outcome;
}

// All rounds once, then what came of it, the same on every rank.
Sweep::Pass Sweep::pass(Tally& tally, int window, int echoes) {
    Outcome sum;
    Nanoseconds longest = 0;
    for (const int round : rounds_) {
        if (echoes > 0) {
            Outcome answered = echo(tally, echoes, round);
            sum.corrupted += answered.corrupted;
            const bool interrupted = answered.interrupted;
            tally.add({Op::request, tally.size, echoes, 1, 0}, std::move(answered));
            if (interrupted) return {.interrupted = true};
        }
        Outcome one = burst(tally.op, tally.size, window, options_.inflight, round, tally.latency);
        sum.elapsed += one.elapsed;
        sum.operations += one.operations;
        sum.bytes += one.bytes;
        sum.corrupted += one.corrupted;
        longest = std::max(longest, one.elapsed);
        const bool interrupted = one.interrupted;
        tally.add({tally.op, tally.size, window, options_.inflight, 0}, std::move(one));
        if (interrupted) return {.interrupted = true};
    }
    double most[] = {seconds(sum.elapsed), seconds(longest),
                     session_.rank() == 0 ? seconds(session_.transport.clock() - begin_) : 0.0};
    double all[] = {static_cast<double>(sum.bytes), static_cast<double>(sum.operations),
                    static_cast<double>(sum.corrupted)};
    session_.max(most);
    session_.sum(all);
    return {most[0], most[1], all[0], all[1], all[2], most[2], false};
}

// The first contact of every pair, and what messages cost: two sizes tell the lines of the planner.
void Sweep::probe() {
    const int all = pattern_.schedule(options_.operations[0]).rounds();
    rounds_ = sample_rounds(all, 3);
    const auto [small, large] = std::ranges::minmax(options_.sizes);
    const std::size_t second = std::max(small, std::min(large, probe_size_most));
    const int window = work_.smallest_window;
    const double rounds = static_cast<double>(rounds_.size());
    double timed[2] = {}, whole[2] = {};
    for (const std::size_t size :
         {small, small, second}) {  // the first only wakes the connections up
        const int which = size == small ? 0 : 1;
        Tally tally(options_.operations[0], size);
        const Pass before = pass(tally, 1, 0), after = pass(tally, window, 0);
        timed[which] = after.longest / window;
        whole[which] = (after.elapsed - before.elapsed) / rounds;
        if (after.interrupted || before.interrupted) return;
    }
    if (second == small) timed[1] = timed[0], whole[1] = whole[0];
    const double x0 = static_cast<double>(small), x1 = static_cast<double>(second);
    planner_ = std::make_unique<Planner>(work_, Line::through(x0, timed[0], x1, timed[1]),
                                         Line::through(x0, whole[0], x1, whole[1]));
    rounds_ = sample_rounds(
        all, options_.rounds > 0 ? options_.rounds : planner_->affordable_rounds(all));
    planner_->set_rounds(static_cast<int>(rounds_.size()));
    for (const Op op : options_.operations) {
        Tally warm_up(op, small);
        pass(warm_up, 1, 0);
    }
}

// How many messages of a round are asked for their latency. Long ones once: each takes a round
// trip.
int Sweep::echoes(Op op, int window, bool first) {
    if (op != Op::stream || (window == 1 && !first)) return 0;
    return std::clamp(window / 4, 1, 32);
}

// One size and operation; false when a signal came.
bool Sweep::measure(std::size_t item, Op op, std::size_t size) {
    Tally tally(op, size);
    Passes passes;
    int window = planner_->window(size);
    double share[] = {session_.rank() == 0 ? seconds(session_.transport.clock() - begin_) : 0.0};
    session_.max(share);
    const double deadline = planner_->deadline(item, share[0]);
    bool interrupted = false;
    for (double before = share[0];;) {
        if (options_.iterations > 0)
            window = static_cast<int>(
                std::min<std::int64_t>(window, options_.iterations - passes.messages));
        session_.expect(planner_->burst_seconds(size, window));
        const Pass one = pass(tally, window, echoes(op, window, passes.messages == 0));
        if ((interrupted = one.interrupted)) break;
        passes.messages += window;
        passes.bytes += one.bytes;
        passes.operations += one.operations;
        passes.corrupted += one.corrupted;
        passes.wall += one.timed;
        passes.bandwidth.push_back(one.bytes / one.timed);
        passes.rate.push_back(one.operations / one.timed);
        tell_progress(item, op, size);
        const double took = one.elapsed - before;
        before = one.elapsed;
        if (planner_->finished(passes.messages, passes.bandwidth)) break;
        if (options_.iterations <= 0 && one.elapsed + took / 2 > deadline) break;
        window = planner_->adapted(size, window, one.longest);
    }
    if (interrupted) return false;
    Json params = {{"size", size}, {"op", name(op)}};
    params.update(pattern_.params);
    report(session_, measurement_, std::move(params), tally, passes);
    return true;
}

void Sweep::tell_progress(std::size_t item, Op op, std::size_t size) {
    const double elapsed = seconds(session_.transport.clock() - begin_),
                 left = planner_->left(item + 1, elapsed);
    session_.progress(elapsed / (elapsed + left), fmt::format("{} {} B", name(op), size), left);
}

bool Sweep::run() {
    const std::size_t place = find_place();
    begin_ = session_.transport.clock();
    exchange_ = std::make_unique<Exchange>(session_, place,
                                           std::ranges::any_of(options_.operations, one_sided));
    probe();
    pattern_.params["peers"] = static_cast<int>(rounds_.size()) * pattern_.initiated_lanes;
    bool going = planner_ != nullptr;
    std::size_t item = 0;
    for (const std::size_t size : options_.sizes)
        for (const Op op : options_.operations)
            if (going) going = measure(item++, op, size);
    exchange_.reset();
    return going;
}

void run_sweep(Session& session, const Measurement& measurement, SweepOptions options,
               Pattern pattern) {
    report_context(session);
    Wire wire(session);
    Sweep sweep(session, measurement, std::move(options), std::move(pattern));
    const bool complete = sweep.run();
    wire.report(sweep.bytes_sent_to_other_hosts());
    if (!complete) throw Error("interrupted", "what was measured before has been kept");
}

}  // namespace assay::network
