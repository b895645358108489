// Runs a paced workload (workload.hpp): one thread for each step of each station. The thread and
// its buffers are on NUMA node (station mod nodes).
//
// Block k of a step is due at t0 + (k + phase) * block / rate. The phases of the threads are spread
// over the period, as the data of different stations arrive; with equal phases all threads would
// start at once in each period, which is a different load. A thread sleeps until a block is due and
// processes it. A thread that has fallen behind continues at once: it skips no work, so a lack of
// bandwidth lowers the measured rate. A block is late if it begins when the next one is already
// due. Each thread runs for a whole number of periods and starts no block after them.
#include "node/memory/paced.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/interrupt.hpp"
#include "core/numa.hpp"
#include "core/options.hpp"
#include "core/record.hpp"
#include "core/topology.hpp"
#include "machine/available_memory.hpp"
#include "node/memory/kernels.hpp"
#include "node/memory/workload.hpp"

namespace assay::node {
namespace {

// Edges of the histogram of lateness, in seconds.
constexpr std::array<double, 15> edges = {0,    1e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3,
                                          1e-2, 3e-2, 1e-1, 3e-1, 1,    10,   1e4};
constexpr Nanoseconds warm_up = 200'000'000;  // from the last thread's start to the first block

// The counts of one thread.
struct ThreadResult {
    std::uint64_t blocks = 0, late = 0;
    double elapsed = 0;  // seconds, at least the planned time
    Histogram lateness;
};

void wait_until(Nanoseconds time) {
    const timespec deadline{time / 1'000'000'000, time % 1'000'000'000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, nullptr) == EINTR &&
           !interrupted()) {
    }
}

// The buffers of one thread, and its operation on them.
class Worker {
public:
    Worker(const Workload& workload, const PacedStep& step, int node)
        : step_(step),
          chunk_(workload.chunk),
          multiplier_(workload.multiplier),
          target_(padded(step.block), node) {
        std::memset(target_.data(), 1, target_.size());
        if (step.traffic() > 1) {
            source_.emplace(padded(step.block), node);
            std::memset(source_->data(), 2, source_->size());
        }
    }

    void process_block(std::uint64_t round) {
        switch (step_.operation) {
            case Operation::write:
                std::memset(target_.data(), static_cast<int>(round & 0xff), step_.block);
                break;
            case Operation::read: read(); break;
            case Operation::copy: std::memcpy(target_.data(), source_->data(), step_.block); break;
            case Operation::transpose: transpose(); break;
        }
        // Makes the compiler assume that the written data are read, so that it keeps the stores.
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

// Processes `blocks` blocks, each when it is due. Block k is due `(phase + k) * period` seconds
// after `common_start`.
ThreadResult run_paced(Worker& worker, Nanoseconds common_start, double phase, double period,
                       std::uint64_t blocks) {
    ThreadResult result;
    const Nanoseconds begin = common_start + static_cast<Nanoseconds>(phase * period * 1e9);
    const auto due = [&](std::uint64_t k) {
        return begin + static_cast<Nanoseconds>(static_cast<double>(k) * period * 1e9);
    };
    const Nanoseconds end_time = due(blocks);
    Nanoseconds clock = now();
    for (std::uint64_t k = 0; k < blocks && !interrupted(); ++k) {
        const Nanoseconds start = due(k);
        if (clock < start) {
            wait_until(start);
            clock = now();
        }
        if (clock >= end_time) break;
        result.lateness.record(std::max<Nanoseconds>(clock - start, 0));
        result.late += clock >= due(k + 1);
        worker.process_block(k);
        ++result.blocks;
        clock = now();
    }
    const Nanoseconds planned = interrupted() ? clock : end_time;
    result.elapsed = seconds(std::max(clock, planned) - begin);
    return result;
}

// The phase of a thread, 0 to 1: evenly spread for any number of threads (multiples of the golden
// ratio).
double phase(std::size_t thread) {
    const double turns = static_cast<double>(thread) * 0.6180339887498949;
    return turns - std::floor(turns);
}

// The workload and its duration.
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

// The cores that a station may run on, each with the number of the node whose memory it uses: the
// cores' own, else the nearest.
std::vector<NumaNode> places_of_stations() {
    std::vector<NumaNode> places;
    for (const NumaNode& node : numa_nodes())
        if (!node.cores.empty() && node.bytes > 0) places.push_back(node);
    for (const RemoteCores& remote : cores_without_memory())
        places.push_back({remote.memory, remote.cores, 0});
    if (places.empty())
        throw Error("no NUMA node has memory that this process may use",
                    "allow it memory (cpuset.mems of its control group, or numactl)");
    return places;
}

// Runs the workload. Outcomes are ordered by station, then step.
std::vector<ThreadResult> run(const Plan& plan, Sink& sink) {
    const std::vector<NumaNode> places = places_of_stations();
    const auto& steps = plan.workload.steps;
    const std::size_t threads = static_cast<std::size_t>(plan.workload.stations) * steps.size();
    std::vector<ThreadResult> results(threads);
    std::vector<std::exception_ptr> errors(threads);
    std::atomic<bool> failed{false};
    Nanoseconds begin = 0;
    std::atomic<std::size_t> running{threads};
    std::barrier ready(static_cast<std::ptrdiff_t>(threads),
                       [&]() noexcept { begin = now() + warm_up; });
    std::vector<std::jthread> pool;
    pool.reserve(threads);
    const auto work = [&](std::size_t t) {
        std::optional<Worker> worker;
        const PacedStep& step = steps[t % steps.size()];
        try {
            prctl(PR_SET_TIMERSLACK, 1);  // the default lets it wake up to 50 us late
            const NumaNode& place = places[(t / steps.size()) % places.size()];
            bind_to_node(place);
            worker.emplace(plan.workload, step, place.number);
        } catch (...) {
            errors[t] = std::current_exception();
            failed = true;
        }
        ready.arrive_and_wait();
        if (!failed)
            results[t] = run_paced(*worker, begin, phase(t), plan.period(step), plan.blocks(step));
        --running;
    };
    try {
        for (std::size_t t = 0; t < threads; ++t) pool.emplace_back(work, t);
    } catch (...) {  // no more threads: the others would wait for those
        failed = true;
        for (std::size_t t = pool.size(); t < threads; ++t) ready.arrive_and_drop();
        throw;
    }
    const Nanoseconds first = now();
    while (running > 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        const double elapsed = seconds(now() - first);
        if (!failed)
            sink.progress(std::min(1.0, elapsed / plan.seconds), plan.workload.name,
                          std::max(0.0, plan.seconds - elapsed));
    }
    pool.clear();
    for (const auto& error : errors)
        if (error) std::rethrow_exception(error);
    return results;
}

// Totals of some threads: bytes per second measured and desired, and the share of late blocks.
struct Totals {
    double measured = 0, desired = 0, late = 0;
    std::size_t threads = 0;
    Histogram lateness;

    void add(const ThreadResult& result, const PacedStep& step) {
        const double bytes = static_cast<double>(result.blocks * step.block) * step.traffic();
        measured += result.elapsed > 0 ? bytes / result.elapsed : 0;
        desired += step.rate * step.traffic();
        late += result.blocks > 0
                    ? static_cast<double>(result.late) / static_cast<double>(result.blocks)
                    : 1;
        lateness.merge(result.lateness.counts());
        ++threads;
    }
    double achieved() const { return desired > 0 ? measured / desired : 0; }
    double mean_late() const { return threads > 0 ? late / static_cast<double>(threads) : 0; }
};

std::vector<std::uint64_t> binned_counts(const Histogram& histogram) {
    std::vector<std::uint64_t> counts(edges.size() - 1);
    histogram.for_each([&](double value_s, std::uint64_t count) {
        const auto above = std::upper_bound(edges.begin() + 1, edges.end() - 1, value_s);
        counts[static_cast<std::size_t>(above - edges.begin()) - 1] += count;
    });
    return counts;
}

void write_records(const Plan& plan, const std::vector<ThreadResult>& results, double scale,
                   Sink& sink) {
    const auto& steps = plan.workload.steps;
    const auto total = std::make_unique<Totals>();
    const Subject subject{.host = host_name()};
    Json params = {{"workload", plan.workload.name}, {"scale", scale}, {"threads", results.size()}};
    const auto single = [&](const char* metric, double value, const Json& step_params) {
        sink.measurement(memory_paced, metric, subject, step_params, summarize({&value, 1}));
    };
    for (std::size_t s = 0; s < steps.size(); ++s) {
        const auto step_total = std::make_unique<Totals>();
        for (std::size_t t = s; t < results.size(); t += steps.size()) {
            step_total->add(results[t], steps[s]);
            total->add(results[t], steps[s]);
        }
        Json step_params = params;
        step_params["step"] = s + 1;
        step_params["operation"] = name(steps[s].operation);
        step_params["size"] = steps[s].block;
        single("step_achieved", step_total->achieved(), step_params);
        single("step_late", step_total->mean_late(), step_params);
    }
    single("desired", total->desired, params);
    single("measured", total->measured, params);
    single("achieved", total->achieved(), params);
    single("late", total->mean_late(), params);
    sink.distribution(memory_paced, "lateness", subject, params, total->lateness.summary(), edges,
                      binned_counts(total->lateness));
}

}  // namespace

void detail::run_memory_paced(const Options& options, Bench& bench) {
    if (options.text("workload").empty())
        throw Error("node.memory_paced needs a workload", "run it with: assay mem --paced");
    const double scale = options.real("scale");
    Plan plan{parse_workload(options.text("workload")), options.real("budget")};
    for (PacedStep& step : plan.workload.steps) step.rate *= scale;
    if (plan.workload.memory() > available_memory())
        throw Error("the workload needs " + std::to_string(plan.workload.memory() >> 20) +
                        " MiB, more than is free",
                    "free memory on this node, or use a smaller workload");
    if (options.flag("realtime")) enter_realtime();
    catch_interrupts();
    const auto results = run(plan, bench.sink);
    write_records(plan, results, scale, bench.sink);
    if (interrupted()) throw Error("interrupted: the results cover the time until then");
}

}  // namespace assay::node
