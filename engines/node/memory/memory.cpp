// Memory bandwidth over arrays of four times the last-level cache, as McCalpin's STREAM requires.
//
// A team of threads, one bound to each core in use, works on arrays on one NUMA node. Each thread
// has its own arrays, which it touched first. A pass starts for all threads at once and lasts until
// the slowest has finished. The first pass is warm-up and is dropped.
//
// Where the last-level cache is hundreds of MiB, a pass over whole arrays takes a second. Each pass
// after the first then covers the next part of the arrays only. As many other bytes have moved
// since a part's last use as between two passes over whole arrays, so no part is still in the
// cache.
#include "node/memory/memory.hpp"

#include <algorithm>
#include <barrier>
#include <cmath>
#include <functional>
#include <thread>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/options.hpp"
#include "core/record.hpp"
#include "core/topology.hpp"
#include "node/memory/kernels.hpp"

namespace assay::node {
namespace {

// Space between the arrays of a thread, so that equal offsets use different cache sets and banks.
constexpr std::size_t skew = 1088;  // bytes: an odd number of lines

// One thread's three arrays, in one allocation on one node.
class ThreadArrays {
public:
    ThreadArrays(std::size_t n, int node) : memory_(3 * (n * sizeof(double) + skew), node) {
        auto* base = static_cast<char*>(memory_.data());
        const auto array = [&](std::size_t k) {
            return reinterpret_cast<double*>(base + k * (n * sizeof(double) + skew));
        };
        arrays_ = {array(0), array(1), array(2), n};
        std::fill_n(arrays_.a, n, 1.0);
        std::fill_n(arrays_.b, n, 2.0);
        std::fill_n(arrays_.c, n, 0.5);
        if (node != NodeMemory::any && !memory_.is_on_node(node))
            throw Error("memory requested on NUMA node " + std::to_string(node) + " is elsewhere",
                        "check with numactl --hardware whether that node is full");
    }
    const Arrays& arrays() const { return arrays_; }

private:
    NodeMemory memory_;
    Arrays arrays_{};
};

// A regular store is counted together with the read of its cache line. Some processors write whole
// lines without reading them (AMD's from Zen 4, partly Intel's from Ice Lake). They would seem to
// move up to twice as much as the read and streaming kernels. Beyond this factor the line reads
// cannot have happened, and are not counted.
constexpr double max_excess = 1.3;

// On a busy machine a pass takes seconds, so progress is reported between passes.
constexpr Nanoseconds report_interval = 1'000'000'000;

// The passes over the arrays: as many as fit into the time, but at least `repeats`.
struct Budget {
    double seconds;
    std::int64_t repeats;
};

// Doubles of each array in a pass, where a pass over all `whole` of them takes `elapsed` seconds:
// the arrays in equal parts, so many that the budget's repeats take no longer than its seconds.
std::size_t pass_length(std::size_t whole, double elapsed, const Budget& budget) {
    const double parts = std::ceil(elapsed * static_cast<double>(budget.repeats) / budget.seconds);
    const std::size_t steps = whole / kernel_step;
    return steps / std::clamp<std::size_t>(static_cast<std::size_t>(parts), 1, steps) * kernel_step;
}

Arrays part(const Arrays& arrays, std::size_t offset, std::size_t length) {
    return {arrays.a + offset, arrays.b + offset, arrays.c + offset, length};
}

// Threads bound to cores, each with its own arrays.
class ThreadTeam {
public:
    ThreadTeam(std::vector<int> cores, const std::vector<int>& memory_nodes, std::size_t total)
        : cores_(std::move(cores)) {
        const std::size_t n =
            std::max<std::size_t>(total / sizeof(double) / cores_.size() / kernel_step, 1) *
            kernel_step;
        thread_arrays_.resize(cores_.size());
        std::vector<std::exception_ptr> errors(cores_.size());
        {
            std::vector<std::jthread> pool;
            pool.reserve(cores_.size());
            for (std::size_t t = 0; t < cores_.size(); ++t)
                pool.emplace_back([&, t] {
                    try {
                        bind_to_core(cores_[t]);
                        thread_arrays_[t] = std::make_unique<ThreadArrays>(n, memory_nodes[t]);
                    } catch (...) {
                        errors[t] = std::current_exception();
                    }
                });
        }
        for (const auto& error : errors)
            if (error) std::rethrow_exception(error);
    }

    std::size_t threads() const { return cores_.size(); }

    // The bandwidth of each pass, in B/s. Calls report_progress() between two passes, at most once
    // a second.
    std::vector<double> measure_passes(const Kernel& kernel, const Budget& budget,
                                       const std::function<void()>& report_progress) const {
        std::vector<double> bandwidths, checksums(threads());
        const std::size_t whole = thread_arrays_[0]->arrays().n;
        std::size_t length = whole, offset = 0;  // of a pass, in doubles of each array
        Nanoseconds begin = 0;
        const Nanoseconds first_pass_start = now();
        Nanoseconds last_report = first_pass_start;
        bool done = false;
        std::barrier start(static_cast<std::ptrdiff_t>(threads()),
                           [&]() noexcept { begin = now(); });
        std::barrier stop(static_cast<std::ptrdiff_t>(threads()), [&]() noexcept {
            const Nanoseconds end = now();
            const auto bytes = static_cast<double>(length * sizeof(double) * threads());
            bandwidths.push_back(kernel.traffic * bytes / seconds(end - begin));
            if (bandwidths.size() == 1) length = pass_length(whole, seconds(end - begin), budget);
            else offset += length;
            if (offset + length > whole) offset = 0;
            done = seconds(end - first_pass_start) >= budget.seconds &&
                   static_cast<std::int64_t>(bandwidths.size()) > budget.repeats;
            if (end - last_report > report_interval) {
                last_report = end;
                report_progress();
            }
        });
        std::vector<std::jthread> pool;
        pool.reserve(threads());
        for (std::size_t t = 0; t < threads(); ++t)
            pool.emplace_back([&, t] {
                bind_to_core(cores_[t]);
                do {
                    start.arrive_and_wait();
                    checksums[t] += kernel.run(part(thread_arrays_[t]->arrays(), offset, length));
                    stop.arrive_and_wait();
                } while (!done);
            });
        pool.clear();
        volatile double consumed = 0;
        for (double checksum : checksums) consumed = consumed + checksum;
        bandwidths.erase(bandwidths.begin());
        return bandwidths;
    }

private:
    std::vector<int> cores_;
    std::vector<std::unique_ptr<ThreadArrays>> thread_arrays_;
};

// A choice of cores and of the memory that they use.
struct Configuration {
    std::vector<int> cores, memory_nodes;  // of each thread
    std::optional<int> node;               // the node of the cores; none: all nodes
    Json memory_node;                      // as recorded: the node's number, or "local"
    std::size_t bytes;                     // in each of the three arrays
};

// One core of the first node with its own memory; the cores of each node with the memory of each
// node; all cores, each with the memory of its own node.
std::vector<Configuration> configurations() {
    const auto& nodes = numa_nodes();
    std::vector<Configuration> list;
    std::size_t nodes_with_cores = 0;
    for (const NumaNode& node : nodes) nodes_with_cores += !node.cores.empty();
    const std::size_t node_bytes =
        4 * last_level_cache() / std::max<std::size_t>(nodes_with_cores, 1);
    Configuration all_nodes{{}, {}, std::nullopt, "local", 4 * last_level_cache()};
    for (const NumaNode& node : nodes) {
        if (node.cores.empty()) continue;
        if (list.empty() && node.cores.size() > 1)
            list.push_back({{node.cores[0]}, {node.number}, node.number, node.number, node_bytes});
        for (const NumaNode& memory : nodes)
            if (memory.bytes > 0)
                list.push_back({node.cores, std::vector<int>(node.cores.size(), memory.number),
                                node.number, memory.number, node_bytes});
        for (int core : node.cores) {
            all_nodes.cores.push_back(core);
            all_nodes.memory_nodes.push_back(node.bytes > 0 ? node.number : NodeMemory::any);
        }
    }
    if (nodes_with_cores > 1) list.push_back(std::move(all_nodes));
    return list;
}

}  // namespace

void detail::run_memory(const Options& options, Bench& bench) {
    if (options.flag("realtime")) enter_realtime();
    const std::size_t needed = 12 * last_level_cache();
    if (needed > available_memory())
        throw Error("node.memory needs " + std::to_string(needed >> 20) + " MiB, more than is free",
                    "free memory on this node");
    const Budget budget{options.real("budget"), options.integer("repeats")};
    const auto all = configurations();
    const auto kernel_list = kernels();
    const double steps = static_cast<double>(all.size() * kernel_list.size());
    double done = 0;
    for (const Configuration& setup : all) {
        const ThreadTeam team(setup.cores, setup.memory_nodes, setup.bytes);
        double best_bandwidth = 0;  // of the kernels without regular stores
        for (const Kernel& kernel : kernel_list) {
            const auto report_progress = [&] {
                bench.sink.progress(done / steps, std::string(kernel.operation),
                                    (steps - done) * budget.seconds);
            };
            report_progress();
            auto samples = team.measure_passes(kernel, budget, report_progress);
            bool reads_lines = kernel.stores == "regular";
            if (!reads_lines) best_bandwidth = std::max(best_bandwidth, summarize(samples).median);
            if (reads_lines && summarize(samples).median > max_excess * best_bandwidth) {
                for (double& sample : samples) sample *= (kernel.traffic - 1) / kernel.traffic;
                reads_lines = false;
            }
            Subject subject{.host = host_name()};
            subject.numa = setup.node;
            bench.sink.measurement(memory, "bandwidth", subject,
                                   {{"operation", kernel.operation},
                                    {"stores", kernel.stores},
                                    {"line_reads", reads_lines ? "counted" : "none"},
                                    {"threads", team.threads()},
                                    {"memory_node", setup.memory_node}},
                                   summarize(samples), samples);
            ++done;
        }
    }
}

}  // namespace assay::node
