// Measures operating-system noise: a loop on each core reads the clock without pause. Two readings
// further apart than the threshold mean that the core did something else in between (the "selfish"
// detour benchmark of Beckman et al., Cluster 2006).
#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "core/clock.hpp"
#include "core/options.hpp"
#include "core/record.hpp"
#include "core/topology.hpp"
#include "node/noise.hpp"

namespace assay::node {
namespace {

// Ten times a slow clock reading; an interrupt takes at least this long.
constexpr Nanoseconds threshold = 1000;

// Interruptions of the loop on one core.
struct Detours {
    double lost = 0;     // share of the time
    double longest = 0;  // seconds
};

Detours count_detours(double duration) {
    const Nanoseconds begin = now();
    const auto end = begin + static_cast<Nanoseconds>(duration * 1e9);
    Nanoseconds lost = 0, longest = 0, last = begin;
    while (last < end) {
        const Nanoseconds t = now();
        const Nanoseconds gap = t - last;
        if (gap > threshold) {
            lost += gap;
            longest = std::max(longest, gap);
        }
        last = t;
    }
    return {seconds(lost) / seconds(last - begin), seconds(longest)};
}

}  // namespace

void detail::run_noise(const Options& options, Bench& bench) {
    const int cores = core_count();
    std::vector<Detours> per_core(static_cast<std::size_t>(cores));
    bench.sink.progress(0, "watching every core", options.real("budget"));
    {
        std::vector<std::jthread> pool;
        pool.reserve(static_cast<std::size_t>(cores));
        for (int core = 0; core < cores; ++core)
            pool.emplace_back([&, core] {
                bind_to_core(core);
                per_core[static_cast<std::size_t>(core)] = count_detours(options.real("budget"));
            });
    }
    std::vector<double> lost, longest;
    for (const Detours& d : per_core) {
        lost.push_back(d.lost);
        longest.push_back(d.longest);
    }
    bench.sink.measurement(noise, "lost", {.host = host_name()}, {{"cores", cores}},
                           summarize(lost), lost);
    bench.sink.measurement(noise, "longest", {.host = host_name()}, {{"cores", cores}},
                           summarize(longest), longest);
}

}  // namespace assay::node
