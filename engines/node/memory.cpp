// Memory bandwidth by four kernels over arrays four times the last-level cache, as McCalpin's STREAM asks.
//
// Counted are the bytes that really move: a regular store first reads the line that it overwrites
// (write-allocate), so write moves 2 bytes a byte, copy 3, triad 4 (read 1). Each thread works on its own
// part, which it touched first, so that pages lie on its own NUMA node. A pass starts for all threads at
// once and lasts until the slowest has finished.
#include <algorithm>
#include <barrier>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/options.hpp"
#include "core/record.hpp"
#include "core/topology.hpp"
#include "node/memory.hpp"

namespace assay::node {
namespace {

// Three arrays of one thread; `n` doubles each.
struct Arrays {
    explicit Arrays(std::size_t n_) : n(n_), a(make()), b(make()), c(make()) {
        std::fill_n(a.get(), n, 1.0);
        std::fill_n(b.get(), n, 2.0);
        std::fill_n(c.get(), n, 0.5);
    }
    struct Free { void operator()(double* p) const { std::free(p); } };
    using Array = std::unique_ptr<double[], Free>;
    Array make() const {
        auto* p = static_cast<double*>(std::aligned_alloc(4096, n * sizeof(double)));
        if (p == nullptr) throw Error("node.memory: no memory for its arrays", "free some, or run on an idle node");
        return Array(p);
    }
    std::size_t n;
    Array a, b, c;
};

// Everything read is consumed: the sum is returned and kept, so that no compiler drops the loop.
double read(Arrays& x) {
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;
    const double* a = x.a.get();
    for (std::size_t i = 0; i + 8 <= x.n; i += 8) {
        s0 += a[i]; s1 += a[i + 1]; s2 += a[i + 2]; s3 += a[i + 3];
        s4 += a[i + 4]; s5 += a[i + 5]; s6 += a[i + 6]; s7 += a[i + 7];
    }
    return s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7;
}

// Regular stores: the build forbids the compiler to make memset or memcpy of these loops
// (-fno-tree-loop-distribute-patterns), which would store past the cache.
double write(Arrays& x) {
    double* a = x.a.get();
    for (std::size_t i = 0; i < x.n; ++i) a[i] = 3.0;
    return a[x.n / 2];
}

double copy(Arrays& x) {
    double* a = x.a.get();
    const double* b = x.b.get();
    for (std::size_t i = 0; i < x.n; ++i) a[i] = b[i];
    return a[x.n / 2];
}

double triad(Arrays& x) {
    double* a = x.a.get();
    const double* b = x.b.get();
    const double* c = x.c.get();
    for (std::size_t i = 0; i < x.n; ++i) a[i] = b[i] + 3.0 * c[i];
    return a[x.n / 2];
}

struct Kernel {
    const char* name;
    double (*run)(Arrays&);
    double moved;  // bytes moved per byte of one array, write-allocate included
};
constexpr Kernel kernels[] = {{"read", read, 1}, {"write", write, 2}, {"copy", copy, 3}, {"triad", triad, 4}};

struct Plan {
    double seconds;
    std::int64_t repeats;
    std::size_t n;  // doubles in one thread's array
};

// Bandwidth of each pass, in B/s.
std::vector<double> passes(const Kernel& kernel, std::vector<std::unique_ptr<Arrays>>& arrays, const Plan& plan) {
    const auto threads = arrays.size();
    std::vector<double> bandwidths;
    std::vector<double> kept(threads);
    const double bytes = kernel.moved * static_cast<double>(plan.n * sizeof(double) * threads);
    Nanoseconds begin = 0, first = now();
    bool done = false;
    std::barrier start(static_cast<std::ptrdiff_t>(threads), [&]() noexcept { begin = now(); });
    std::barrier stop(static_cast<std::ptrdiff_t>(threads), [&]() noexcept {
        const Nanoseconds end = now();
        bandwidths.push_back(bytes / seconds(end - begin));
        // The first pass warms up and is dropped below.
        done = seconds(end - first) >= plan.seconds && static_cast<std::int64_t>(bandwidths.size()) > plan.repeats;
    });
    const auto work = [&](std::size_t t) {
        bind_to_core(static_cast<int>(t));
        do {
            start.arrive_and_wait();
            kept[t] += kernel.run(*arrays[t]);
            stop.arrive_and_wait();
        } while (!done);
    };
    std::vector<std::jthread> pool;
    for (std::size_t t = 0; t < threads; ++t) pool.emplace_back(work, t);
    pool.clear();
    volatile double consumed = kept[0];
    static_cast<void>(consumed);
    bandwidths.erase(bandwidths.begin());
    return bandwidths;
}

// Allocated and first touched by the thread that uses them, on its own core.
std::vector<std::unique_ptr<Arrays>> allocate(std::size_t threads, std::size_t n) {
    std::vector<std::unique_ptr<Arrays>> arrays(threads);
    std::vector<std::jthread> pool;
    for (std::size_t t = 0; t < threads; ++t)
        pool.emplace_back([&, t] {
            bind_to_core(static_cast<int>(t));
            arrays[t] = std::make_unique<Arrays>(n);
        });
    pool.clear();
    return arrays;
}

}  // namespace

void detail::run_memory(const Options& options, Bench& bench) {
    const auto cores = static_cast<std::size_t>(core_count());
    const std::size_t total = 4 * last_level_cache();  // bytes in each of the three arrays, all threads
    if (3 * total > available_memory())
        throw Error("node.memory: needs " + std::to_string((3 * total) >> 20) + " MiB, more than is free",
                    "free memory on this node");
    for (const std::size_t threads : {std::size_t{1}, cores}) {
        Plan plan{options.real("seconds"), options.integer("repeats"), total / sizeof(double) / threads};
        auto arrays = allocate(threads, plan.n);
        for (const Kernel& kernel : kernels) {
            const auto samples = passes(kernel, arrays, plan);
            bench.sink.measurement(memory, "bandwidth", {.host = host_name()},
                                   {{"operation", kernel.name}, {"threads", threads}}, summarize(samples), samples);
        }
        if (cores == 1) break;
    }
}

}  // namespace assay::node
