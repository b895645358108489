// The cost of verification: how much it adds to the reported time of a 64 KiB transfer over a real
// MPI. Two ranks stream bursts, alternately with and without verification in one job, so that other
// load affects both alike. Rank 0 prints the ratio of the medians minus one as one JSON line.
#include <fmt/core.h>

#include "core/statistics.hpp"
#include "network/exchange.hpp"
#include "transport/transport.hpp"

namespace {

using namespace assay;
using namespace assay::network;

constexpr std::size_t size = 64 << 10;
constexpr int window = 16, turns = 2000;  // bursts shorter than a time slice

void compare(Transport& transport) {
    Sink sink(2);
    Bench bench{sink, transport};
    Session session(bench, {30'000'000'000, 50'000});
    const Round round = Schedule::all_to_all("shift", 2).round(0, session.rank());
    Exchange exchange(session, window * stride(size), false);
    Histogram latency;
    std::uint64_t first = 0;
    const auto burst = [&](bool verify) {
        const Outcome outcome =
            exchange.run({Op::stream, size, window, 1, first, verify}, round, latency);
        first += window;
        return seconds(outcome.elapsed) / window;
    };
    for (int i = 0; i < 20; ++i) burst(true);
    std::vector<double> verified, plain;
    // In both orders, so that the cache contents left by a burst affect both kinds.
    for (int i = 0; i < turns; ++i) {
        if (i % 2) verified.push_back(burst(true));
        plain.push_back(burst(false));
        if (i % 2 == 0) verified.push_back(burst(true));
    }
    if (session.rank() != 0) return;
    const Summary with = summarize(verified), without = summarize(plain);
    fmt::print(
        R"({{"name":"net.engine.verify.cost","value":{:.4g},"unit":"1","limit":0.02,"better":"lower",)"
        R"("peer":{{"name":"without verification","value":{:.4g},"unit":"s"}},"spread":{:.3g}}})"
        "\n",
        with.median / without.median - 1, without.median, with.mad / without.median);
}

}  // namespace

int main(int argc, char** argv) { for_each_rank(argc, argv, compare); }
