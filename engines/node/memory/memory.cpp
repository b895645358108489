// Memory bandwidth over arrays of four times the last-level cache, as McCalpin's STREAM requires.
//
// A team of threads, one bound to each core in use, works on arrays on one NUMA node. Each thread
// has its own arrays, which it touched first. A pass starts for all threads at once and lasts until
// the slowest has finished. A kernel's first pass is warm-up and is dropped.
//
// Where the last-level cache is hundreds of MiB, a pass over whole arrays takes a second. Each pass
// after the team's first then covers the next part of the arrays only, also when the kernel
// changes. As many other bytes have moved since a part's last use as between two passes over whole
// arrays, so no part is still in the cache.
#include "node/memory/memory.hpp"

#include <algorithm>
#include <barrier>
#include <cmath>
#include <functional>
#include <map>
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

// The memory of the arrays, by NUMA node. Configurations share it: the first touch of some GiB
// takes longer than the measurement.
class ArrayMemory {
public:
    // A block of at least `bytes` on a node.
    NodeMemory& block(int node, std::size_t bytes) {
        const auto found = blocks_.find(node);
        if (found != blocks_.end() && found->second.size() >= bytes) return found->second;
        blocks_.erase(node);
        return blocks_.emplace(node, NodeMemory(bytes, node)).first->second;
    }
    void free_other_nodes(const std::vector<int>& nodes) {
        std::erase_if(blocks_,
                      [&](const auto& block) { return !std::ranges::count(nodes, block.first); });
    }

private:
    std::map<int, NodeMemory> blocks_;
};

// Bytes for the three arrays of a thread, of `n` doubles each.
std::size_t array_bytes(std::size_t n) { return 3 * (n * sizeof(double) + skew); }

// A thread's three arrays at `base`. The calling thread touches them.
Arrays fill_arrays(char* base, std::size_t n) {
    const auto array = [&](std::size_t k) {
        return reinterpret_cast<double*>(base + k * (n * sizeof(double) + skew));
    };
    const Arrays arrays{array(0), array(1), array(2), n};
    std::fill_n(arrays.a, n, 1.0);
    std::fill_n(arrays.b, n, 2.0);
    std::fill_n(arrays.c, n, 0.5);
    return arrays;
}

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
    ThreadTeam(std::vector<int> cores, const std::vector<int>& memory_nodes, std::size_t total,
               ArrayMemory& memory)
        : cores_(std::move(cores)) {
        const std::size_t n =
            std::max<std::size_t>(total / sizeof(double) / cores_.size() / kernel_step, 1) *
            kernel_step;
        length_ = n;
        memory.free_other_nodes(memory_nodes);
        std::vector<char*> bases;
        for (std::size_t t = 0; t < cores_.size(); ++t) {
            const int node = memory_nodes[t];
            const auto same_node = static_cast<std::size_t>(std::ranges::count(memory_nodes, node));
            const auto before = static_cast<std::size_t>(std::count(
                memory_nodes.begin(), memory_nodes.begin() + static_cast<std::ptrdiff_t>(t), node));
            NodeMemory& block = memory.block(node, same_node * array_bytes(n));
            bases.push_back(static_cast<char*>(block.data()) + before * array_bytes(n));
        }
        arrays_.resize(cores_.size());
        std::vector<std::exception_ptr> errors(cores_.size());
        {
            std::vector<std::jthread> pool;
            pool.reserve(cores_.size());
            for (std::size_t t = 0; t < cores_.size(); ++t)
                pool.emplace_back([&, t] {
                    try {
                        bind_to_core(cores_[t]);
                        arrays_[t] = fill_arrays(bases[t], n);
                    } catch (...) {
                        errors[t] = std::current_exception();
                    }
                });
        }
        for (const auto& error : errors)
            if (error) std::rethrow_exception(error);
        for (const int node : memory_nodes)
            if (node != NodeMemory::any && !memory.block(node, 0).is_on_node(node))
                throw Error(
                    "memory requested on NUMA node " + std::to_string(node) + " is elsewhere",
                    "check with numactl --hardware whether that node is full");
    }

    std::size_t threads() const { return cores_.size(); }

    // The bandwidth of each pass, in B/s. Calls report_progress() between two passes, at most once
    // a second.
    std::vector<double> measure_passes(const Kernel& kernel, const Budget& budget,
                                       const std::function<void()>& report_progress) {
        std::vector<double> bandwidths, checksums(threads());
        const std::size_t whole = arrays_[0].n;
        Nanoseconds begin = 0;
        const Nanoseconds first_pass_start = now();
        Nanoseconds last_report = first_pass_start;
        bool done = false;
        std::barrier start(static_cast<std::ptrdiff_t>(threads()),
                           [&]() noexcept { begin = now(); });
        std::barrier stop(static_cast<std::ptrdiff_t>(threads()), [&]() noexcept {
            const Nanoseconds end = now();
            const auto bytes = static_cast<double>(length_ * sizeof(double) * threads());
            bandwidths.push_back(kernel.traffic * bytes / seconds(end - begin));
            offset_ += length_;
            if (bandwidths.size() == 1) {
                const double passes = static_cast<double>(whole) / static_cast<double>(length_);
                length_ = pass_length(whole, passes * seconds(end - begin), budget);
            }
            if (offset_ + length_ > whole) offset_ = 0;
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
                    checksums[t] += kernel.run(part(arrays_[t], offset_, length_));
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
    std::vector<Arrays> arrays_;  // of each thread
    // Of the next pass, in doubles of each array.
    std::size_t length_ = 0, offset_ = 0;
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
    ArrayMemory memory_of_arrays;
    for (const Configuration& setup : all) {
        ThreadTeam team(setup.cores, setup.memory_nodes, setup.bytes, memory_of_arrays);
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
