// The paced workload: a thread for each step of each station, bound to the NUMA node that the
// station falls to (station mod nodes), with buffers there.
//
// A step's k-th block is due to begin at t0 + (k + phase) * block / rate. The phases of the threads
// are spread over the period, as the data of different stations come: were they the same, each
// period would begin with all threads at once, which is a load of another kind. A thread sleeps
// until a block is due, works, and if it has fallen behind goes on at once: no work is left out, so
// what cannot be done in time lowers the speed. A block is late when it begins after its whole
// period has passed, that is when the next one is already due. Each thread runs for a whole number
// of periods and begins nothing beyond.
#include "node/memory/paced.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstring>
#include <ctime>
#include <thread>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/interrupt.hpp"
#include "core/options.hpp"
#include "core/record.hpp"
#include "core/topology.hpp"
#include "node/memory/kernels.hpp"
#include "node/memory/workload.hpp"

namespace assay::node {
namespace {

// Edges of the histogram of lateness, in seconds.
constexpr std::array<double, 15> edges = {0,    1e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3,
                                          1e-2, 3e-2, 1e-1, 3e-1, 1,    10,   1e4};
constexpr Nanoseconds warm_up =
    200'000'000;  // between the last thread's readiness and the first block

struct Outcome {
    std::uint64_t blocks = 0, late = 0;
    double elapsed = 0;  // seconds, the planned time at least
    Histogram lateness;
};

void sleep_until(Nanoseconds moment) {
    const timespec at{moment / 1'000'000'000, moment % 1'000'000'000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) == EINTR &&
           !interrupted()) {
    }
}

// The blocks of one thread, and its operation on them.
class Worker {
public:
    Worker(const Workload& workload, const PacedStep& step, int node)
        : step_(step),
          chunk_(workload.chunk),
          multiplier_(workload.multiplier),
          target_(padded(step.block), node) {
        std::memset(target_.data(), 1, target_.size());
        if (step.moved() > 1) {
            source_.emplace(padded(step.block), node);
            std::memset(source_->data(), 2, source_->size());
        }
    }

    void work(std::uint64_t round) {
        switch (step_.operation) {
            case Operation::write:
                std::memset(target_.data(), static_cast<int>(round & 0xff), step_.block);
                break;
            case Operation::read: read(); break;
            case Operation::copy: std::memcpy(target_.data(), source_->data(), step_.block); break;
            case Operation::transpose: transpose(); break;
        }
        // What was written may be looked at by anybody: no compiler leaves it out.
        asm volatile("" : : "r"(target_.data()) : "memory");
    }
    double consumed() const { return consumed_; }

private:
    static std::size_t padded(std::size_t block) {
        constexpr std::size_t step_bytes = kernel_step * sizeof(double);
        return (block + step_bytes - 1) / step_bytes * step_bytes;
    }
    void read() {
        auto* data = static_cast<double*>(target_.data());
        consumed_ +=
            kernels().front().run({nullptr, data, nullptr, padded(step_.block) / sizeof(double)});
    }
    void transpose() {
        auto* to = static_cast<char*>(target_.data());
        const auto* from = static_cast<const char*>(source_->data());
        const std::size_t chunks = step_.block / chunk_;
        for (std::size_t i = 0; i < chunks; ++i)
            std::memcpy(to + transposed(i, multiplier_, chunks) * chunk_, from + i * chunk_,
                        chunk_);
        std::memcpy(to + chunks * chunk_, from + chunks * chunk_, step_.block - chunks * chunk_);
    }

    const PacedStep& step_;
    std::size_t chunk_, multiplier_;
    NodeMemory target_;
    std::optional<NodeMemory> source_;
    double consumed_ = 0;
};

// Block after block, each at its time.
Outcome pace(Worker& worker, Nanoseconds t0, double phase, double period, std::uint64_t blocks) {
    Outcome outcome;
    const Nanoseconds begin = t0 + static_cast<Nanoseconds>(phase * period * 1e9);
    const auto due = [&](std::uint64_t k) {
        return begin + static_cast<Nanoseconds>(static_cast<double>(k) * period * 1e9);
    };
    const Nanoseconds horizon = due(blocks);
    Nanoseconds clock = now();
    for (std::uint64_t k = 0; k < blocks && !interrupted(); ++k) {
        const Nanoseconds start = due(k);
        if (clock < start) {
            sleep_until(start);
            clock = now();
        }
        if (clock >= horizon) break;
        outcome.lateness.record(std::max<Nanoseconds>(clock - start, 0));
        outcome.late += clock >= due(k + 1);
        worker.work(k);
        ++outcome.blocks;
        clock = now();
    }
    const Nanoseconds planned = interrupted() ? clock : horizon;
    outcome.elapsed = seconds(std::max(clock, planned) - begin);
    return outcome;
}

// Spread evenly over 0..1 for any number of threads (multiples of the golden ratio).
double phase(std::size_t thread) {
    const double turns = static_cast<double>(thread) * 0.6180339887498949;
    return turns - std::floor(turns);
}

struct Plan {
    Workload workload;
    double seconds;

    double period(const PacedStep& step) const {
        return static_cast<double>(step.block) / step.rate;
    }
    std::uint64_t blocks(const PacedStep& step) const {
        return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(seconds / period(step)));
    }
};

// Outcomes, station by station, step by step.
std::vector<Outcome> run(const Plan& plan, Sink& sink) {
    const auto& nodes = numa_nodes();
    std::vector<const NumaNode*> with_cores;
    for (const NumaNode& node : nodes)
        if (!node.cores.empty()) with_cores.push_back(&node);
    const auto& steps = plan.workload.steps;
    const std::size_t threads = static_cast<std::size_t>(plan.workload.stations) * steps.size();
    std::vector<Outcome> outcomes(threads);
    std::vector<std::exception_ptr> failed(threads);
    std::atomic<bool> broken{false};
    Nanoseconds begin = 0;
    std::atomic<std::size_t> running{threads};
    std::barrier ready(static_cast<std::ptrdiff_t>(threads),
                       [&]() noexcept { begin = now() + warm_up; });
    std::vector<std::jthread> pool;
    for (std::size_t t = 0; t < threads; ++t)
        pool.emplace_back([&, t] {
            std::optional<Worker> worker;
            const PacedStep& step = steps[t % steps.size()];
            try {
                prctl(PR_SET_TIMERSLACK, 1);  // wakes when asked, not up to 50 us later
                const NumaNode& node = *with_cores[(t / steps.size()) % with_cores.size()];
                bind_to_node(node);
                worker.emplace(plan.workload, step, node.bytes > 0 ? node.number : NodeMemory::any);
            } catch (...) {
                failed[t] = std::current_exception();
                broken = true;
            }
            ready.arrive_and_wait();
            if (!broken)
                outcomes[t] = pace(*worker, begin, phase(t), plan.period(step), plan.blocks(step));
            --running;
        });
    const Nanoseconds first = now();
    while (running > 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        const double passed = seconds(now() - first);
        if (!broken)
            sink.progress(std::min(1.0, passed / plan.seconds), plan.workload.name,
                          std::max(0.0, plan.seconds - passed));
    }
    pool.clear();
    for (const auto& one : failed)
        if (one) std::rethrow_exception(one);
    return outcomes;
}

// What was delivered of some threads: bytes a second, that over what was desired, and the late
// share.
struct Delivered {
    double measured = 0, desired = 0, late = 0;
    std::size_t threads = 0;
    Histogram lateness;

    void add(const Outcome& outcome, const PacedStep& step) {
        const double bytes = static_cast<double>(outcome.blocks * step.block) * step.moved();
        measured += outcome.elapsed > 0 ? bytes / outcome.elapsed : 0;
        desired += step.rate * step.moved();
        late += outcome.blocks > 0
                    ? static_cast<double>(outcome.late) / static_cast<double>(outcome.blocks)
                    : 1;
        lateness.merge(outcome.lateness.counts());
        ++threads;
    }
    double achieved() const { return desired > 0 ? measured / desired : 0; }
    double mean_late() const { return threads > 0 ? late / static_cast<double>(threads) : 0; }
};

std::vector<std::uint64_t> binned(const Histogram& histogram) {
    std::vector<std::uint64_t> counts(edges.size() - 1);
    histogram.for_each([&](double value_s, std::uint64_t count) {
        const auto above = std::upper_bound(edges.begin() + 1, edges.end() - 1, value_s);
        counts[static_cast<std::size_t>(above - edges.begin()) - 1] += count;
    });
    return counts;
}

void report(const Plan& plan, const std::vector<Outcome>& outcomes, double scale, Sink& sink) {
    const auto& steps = plan.workload.steps;
    const auto whole = std::make_unique<Delivered>();
    const Subject subject{.host = host_name()};
    Json params = {
        {"workload", plan.workload.name}, {"scale", scale}, {"threads", outcomes.size()}};
    const auto single = [&](const char* metric, double value, const Json& of) {
        sink.measurement(memory_paced, metric, subject, of, summarize({&value, 1}));
    };
    for (std::size_t s = 0; s < steps.size(); ++s) {
        const auto part = std::make_unique<Delivered>();
        for (std::size_t t = s; t < outcomes.size(); t += steps.size()) {
            part->add(outcomes[t], steps[s]);
            whole->add(outcomes[t], steps[s]);
        }
        Json of = params;
        of["step"] = s + 1;
        of["operation"] = word(steps[s].operation);
        of["size"] = steps[s].block;
        single("step_achieved", part->achieved(), of);
        single("step_late", part->mean_late(), of);
    }
    single("desired", whole->desired, params);
    single("measured", whole->measured, params);
    single("achieved", whole->achieved(), params);
    single("late", whole->mean_late(), params);
    sink.distribution(memory_paced, "lateness", subject, params, whole->lateness.summary(), edges,
                      binned(whole->lateness));
}

}  // namespace

void detail::run_memory_paced(const Options& options, Bench& bench) {
    if (options.text("workload").empty())
        throw Error("node.memory_paced needs a workload", "run it as: assay mem --paced");
    const double scale = options.real("scale");
    Plan plan{parse_workload(options.text("workload")), options.real("seconds")};
    for (PacedStep& step : plan.workload.steps) step.rate *= scale;
    if (plan.workload.memory() > available_memory())
        throw Error("the workload holds " + std::to_string(plan.workload.memory() >> 20) +
                        " MiB, more than is free",
                    "free memory on this node, or take a smaller workload");
    if (options.flag("realtime")) enter_realtime();
    catch_interrupts();
    const auto outcomes = run(plan, bench.sink);
    report(plan, outcomes, scale, bench.sink);
    if (interrupted()) throw Error("interrupted: the figures are of the time until then");
}

}  // namespace assay::node
