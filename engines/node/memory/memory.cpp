// Memory bandwidth over arrays of four times the last-level cache, as McCalpin's STREAM requires.
//
// A team of threads, one bound to each core in use, works on arrays on one NUMA node, each thread
// on its own part. A pass starts for all threads at once and lasts until the slowest has finished.
// A kernel's first pass is warm-up and is dropped.
//
// Where the last-level cache is hundreds of MiB, a pass over whole arrays takes a second. Each pass
// after the team's first then covers the next part of the arrays only, also when the kernel
// changes. As many other bytes have moved since a part's last use as between two passes over whole
// arrays, so no part is still in the cache.
//
// The first touch of the arrays can take longer than all passes: a virtual machine whose host has
// taken memory back needs 3 ms for each MiB. All cores of a node touch its arrays together, each
// array when a kernel first needs it, and all configurations share them.
//
// Under a limit the arrays keep their size: the operations share the time, and those that do not
// fit are waived.
#include "node/memory/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/options.hpp"
#include "core/record.hpp"
#include "core/topology.hpp"
#include "machine/available_memory.hpp"
#include "node/memory/configurations.hpp"
#include "node/memory/kernels.hpp"

namespace assay::node {
namespace {

// Space between the arrays, so that equal offsets use different cache sets and banks.
constexpr std::size_t skew = 1088;  // bytes: an odd number of lines

// What a core touches between two looks at the clock: 0.1 s where the first touch is slow.
constexpr std::size_t touch_step = std::size_t{32} << 20;  // bytes
constexpr std::size_t huge_page = std::size_t{2} << 20;

// The share of the time left that a first touch may take: the passes need the rest.
constexpr double touch_share = 0.8;

// The share of its part of the time left that an operation takes on purpose: the warm-up is extra.
constexpr double operation_share = 0.8;

constexpr double least_seconds = 0.01;  // for an operation: the least --budget

// The arrays that an operation uses: 0 is a, 1 is b, 2 is c.
std::vector<std::size_t> used_arrays(std::string_view operation) {
    if (operation == "read") return {1};
    if (operation == "write") return {0};
    if (operation == "copy") return {0, 1};
    return {0, 1, 2};
}

// The time for all operations together, from its construction on.
class Limit {
public:
    explicit Limit(double limit) : limit_(limit) {}
    // Seconds; infinity without a limit.
    double left() const {
        if (limit_ == 0) return std::numeric_limits<double>::infinity();
        return std::max(limit_ - seconds(now() - start_), 0.0);
    }
    // The reason for leaving out `something`, which would take `needed` seconds.
    std::string reason(const char* something, double needed) const {
        return fmt::format("no time: {} needs {:.2g} s, and {:.2g} s of {:.3g} s were left",
                           something, needed, left(), limit_);
    }

private:
    double limit_;
    Nanoseconds start_ = now();
};

// Runs work(t) in a thread bound to cores[t], for each t. Throws what one of them has thrown.
void run_on_cores(const std::vector<int>& cores, const std::function<void(std::size_t)>& work) {
    std::vector<std::exception_ptr> errors(cores.size());
    {
        std::vector<std::jthread> pool;
        pool.reserve(cores.size());
        for (std::size_t t = 0; t < cores.size(); ++t)
            pool.emplace_back([&, t] {
                try {
                    bind_to_core(cores[t]);
                    work(t);
                } catch (...) {
                    errors[t] = std::current_exception();
                }
            });
    }
    for (const auto& error : errors)
        if (error) std::rethrow_exception(error);
}

// The arrays a, b and c on a NUMA node. The threads that use them have equal parts of each.
class NodeArrays {
public:
    // `cores` touch the arrays.
    NodeArrays(int node, std::size_t doubles, std::vector<int> cores)
        : node_(node),
          bytes_(doubles * sizeof(double) + skew),
          share_(((bytes_ - 1) / cores.size() / huge_page + 1) * huge_page),
          cores_(std::move(cores)),
          memory_(touched_.size() * bytes_, node) {}

    double* array(std::size_t k) const {
        return reinterpret_cast<double*>(static_cast<char*>(memory_.data()) + k * bytes_);
    }
    bool is_touched(std::size_t k) const { return touched_[k] == share_; }

    // Touches the rest of array k. Returns early, with the seconds that are still needed, when
    // the limit does not leave them.
    std::optional<double> touch(std::size_t k, const Limit& limit,
                                const std::function<void()>& report_progress) {
        constexpr std::array initial = {1.0, 2.0, 0.5};
        const double available = touch_share * limit.left();
        const Nanoseconds start = now();
        if (seconds_left(k) > available) return seconds_left(k);
        const std::size_t begin = touched_[k];
        while (!is_touched(k)) {
            const std::size_t end = std::min(touched_[k] + touch_step, share_);
            run_on_cores(cores_, [&](std::size_t t) {
                const auto position = [&](std::size_t offset) {
                    const std::size_t doubles =
                        std::min(t * share_ + offset, bytes_) / sizeof(double);
                    return std::next(array(k), static_cast<std::ptrdiff_t>(doubles));
                };
                std::fill(position(touched_[k]), position(end), initial[k]);
            });
            touched_[k] = end;
            report_progress();
            const double elapsed = seconds(now() - start);
            seconds_per_byte_ = elapsed / static_cast<double>(end - begin);
            // Some pages are slower than others, so the first ones do not decide.
            if (!is_touched(k) && elapsed > available / 4 && elapsed + seconds_left(k) > available)
                return seconds_left(k);
        }
        if (node_ != NodeMemory::any && !memory_.is_on_node(node_))
            throw Error("memory requested on NUMA node " + std::to_string(node_) + " is elsewhere",
                        "check with numactl --hardware whether that node is full");
        return std::nullopt;
    }

private:
    double seconds_left(std::size_t k) const {
        return seconds_per_byte_ * static_cast<double>(share_ - touched_[k]);
    }

    int node_;
    std::size_t bytes_, share_;  // of an array; of an array for each core that touches it
    std::vector<int> cores_;
    std::array<std::size_t, 3> touched_{};  // bytes of each share, by array
    double seconds_per_byte_ = 0;           // of a share; 0: not known yet
    NodeMemory memory_;
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

using ArraysByNode = std::map<int, NodeArrays>;

// The arrays of all configurations. They are not touched yet.
ArraysByNode allocate_arrays(const std::vector<Configuration>& configurations) {
    std::map<int, std::size_t> lengths;
    std::map<int, std::vector<int>> cores;
    for (const NumaNode& node : numa_nodes())
        if (!node.cores.empty()) cores[node.number] = node.cores;
    for (const Configuration& setup : configurations)
        for (std::size_t t = 0; t < setup.cores.size(); ++t) {
            const int node = setup.memory_nodes[t];
            lengths[node] = std::max(lengths[node], setup.length() * setup.threads_on(node));
        }
    // Memory without cores of its own is touched by the first cores that use it.
    for (const Configuration& setup : configurations)
        for (const int node : setup.memory_nodes)
            if (!cores.contains(node))
                for (std::size_t t = 0; t < setup.cores.size(); ++t)
                    if (setup.memory_nodes[t] == node) cores[node].push_back(setup.cores[t]);
    ArraysByNode arrays;
    std::size_t needed = 0;
    for (const auto& [node, length] : lengths) needed += 3 * length * sizeof(double);
    if (needed > available_memory())
        throw Error("node.memory needs " + std::to_string(needed >> 20) + " MiB, more than is free",
                    "free memory on this node");
    for (const auto& [node, length] : lengths)
        arrays.emplace(std::piecewise_construct, std::forward_as_tuple(node),
                       std::forward_as_tuple(node, length, cores.at(node)));
    return arrays;
}

// Threads bound to cores, each with its own part of the arrays.
class ThreadTeam {
public:
    ThreadTeam(const Configuration& setup, ArraysByNode& memory)
        : cores_(setup.cores), length_(setup.length()) {
        std::map<int, std::size_t> before;
        for (const int node : setup.memory_nodes) {
            NodeArrays& arrays = memory.at(node);
            if (before[node] == 0) memory_.push_back(&arrays);
            const std::size_t offset = before[node]++ * length_;
            arrays_.push_back({arrays.array(0) + offset, arrays.array(1) + offset,
                               arrays.array(2) + offset, length_});
        }
    }

    std::size_t threads() const { return cores_.size(); }

    // Touches the arrays that an operation uses. Returns the seconds that are still needed when the
    // limit does not leave them.
    std::optional<double> touch(std::string_view operation, const Limit& limit,
                                const std::function<void()>& report_progress) {
        for (NodeArrays* arrays : memory_)
            for (const std::size_t k : used_arrays(operation)) {
                if (arrays->is_touched(k)) continue;
                if (const auto missing = arrays->touch(k, limit, report_progress)) return missing;
                offset_ = 0;  // the end of the array may be in the cache
            }
        return std::nullopt;
    }

    // The seconds of the next pass where a thread moves `rate` bytes a second.
    double next_pass(const Kernel& kernel, double rate) const {
        return kernel.traffic * static_cast<double>(length_ * sizeof(double)) / rate;
    }

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
    std::vector<NodeArrays*> memory_;  // of each node in use
    std::vector<Arrays> arrays_;       // of each thread
    // Of the next pass, in doubles of each array.
    std::size_t length_ = 0, offset_ = 0;
};

}  // namespace

void detail::run_memory(const Options& options, Bench& bench) {
    if (options.flag("realtime")) enter_realtime();
    const Limit limit(options.real("limit"));
    const Budget whole_budget{options.real("budget"), options.integer("repeats")};
    const auto all = configurations();
    const auto kernel_list = kernels();
    const double steps = static_cast<double>(all.size() * kernel_list.size());
    double done = 0;
    double slowest = std::numeric_limits<double>::infinity();  // B/s of a thread, of all medians
    ArraysByNode arrays = allocate_arrays(all);
    for (const Configuration& setup : all) {
        ThreadTeam team(setup, arrays);
        double best_bandwidth = 0;  // of the kernels without regular stores
        for (const Kernel& kernel : kernel_list) {
            Subject subject{.host = host_name()};
            subject.numa = setup.node;
            Json params = {{"operation", kernel.operation},
                           {"stores", kernel.stores},
                           {"threads", team.threads()},
                           {"memory_node", setup.memory_node}};
            if (setup.is_remote()) params["locality"] = "remote";
            const auto report_progress = [&] {
                bench.sink.progress(done / steps, std::string(kernel.operation),
                                    std::min((steps - done) * whole_budget.seconds, limit.left()));
            };
            report_progress();
            std::string reason;
            if (const auto missing = team.touch(kernel.operation, limit, report_progress))
                reason = limit.reason("the first touch of the arrays", *missing);
            // The warm-up, and as much again.
            const double least = std::max(2 * team.next_pass(kernel, slowest), least_seconds);
            if (reason.empty() && least > limit.left())
                reason = limit.reason("the operation", least);
            if (!reason.empty()) {
                bench.sink.waived(memory, "bandwidth", subject, params, reason);
                ++done;
                continue;
            }
            Budget budget = whole_budget;
            budget.seconds = std::clamp(operation_share * limit.left() / (steps - done),
                                        least_seconds, whole_budget.seconds);
            auto samples = team.measure_passes(kernel, budget, report_progress);
            const double median = summarize(samples).median;
            slowest = std::min(slowest, median / static_cast<double>(team.threads()));
            bool reads_lines = kernel.stores == "regular";
            if (!reads_lines) best_bandwidth = std::max(best_bandwidth, median);
            if (reads_lines && median > max_excess * best_bandwidth) {
                for (double& sample : samples) sample *= (kernel.traffic - 1) / kernel.traffic;
                reads_lines = false;
            }
            params["line_reads"] = reads_lines ? "counted" : "none";
            bench.sink.measurement(memory, "bandwidth", subject, params, summarize(samples),
                                   samples);
            ++done;
        }
    }
}

}  // namespace assay::node
