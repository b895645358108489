// The overhead of the network engine, without a network: nanoseconds per message over a transport
// that completes every operation immediately, the speed of verification compared with memcpy, and
// the time of planning for 10,000 nodes. Prints one JSON line per figure.
#include <fmt/core.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "core/pattern.hpp"
#include "core/statistics.hpp"
#include "network/exchange.hpp"
#include "network/planner.hpp"
#include "transport/null.hpp"

namespace {

using namespace assay;
using namespace assay::network;

// Calls `measure` once to warm up and then `repetitions` times; summarizes the values it returns.
template <class Measure>
Summary repeated(Measure measure, int repetitions = 15) {
    std::vector<double> values;
    measure();
    for (int i = 0; i < repetitions; ++i) values.push_back(measure());
    return summarize(values);
}

// Prints a figure: the median, and as spread the median absolute deviation. `limit` and `peer`
// (what the figure is compared with) are JSON.
void figure(const char* name, const Summary& s, const char* unit, const char* limit,
            const char* better, const std::string& peer) {
    fmt::print(
        R"({{"name":"{}","value":{:.4g},"unit":"{}","limit":{},"better":"{}","peer":{},"spread":{:.3g}}})"
        "\n",
        name, s.median, unit, limit, better, peer, s.mad);
}

void message_cost() {
    Sink sink(2);
    const auto transport = instant_transport();
    Bench bench{sink, *transport};
    Session session(bench, {.timeout = 30'000'000'000, .spin = 50'000});
    // Each repetition is shorter than a scheduler time slice, so the median is of repetitions that
    // were not interrupted.
    constexpr int messages = 1000, repetitions = 501;
    Exchange exchange(session, messages * stride(8), /*one_sided=*/true);
    const Round round = Schedule::all_to_all("shift", 2).round(0, 0);
    const Summary clock = repeated(
        [] {
            const Nanoseconds begin = now();
            for (int i = 0; i < messages; ++i) asm volatile("" ::"r"(now()));
            return static_cast<double>(now() - begin) / messages;
        },
        repetitions);
    const std::string peer =
        fmt::format(R"({{"name":"one reading of the clock","value":{:.3g}}})", clock.median);
    for (const Op op : {Op::stream, Op::put, Op::get}) {
        Histogram latency;
        const Summary cost = repeated(
            [&] {
                const Burst burst{.op = op,
                                  .size = 8,
                                  .window = messages,
                                  .inflight = 1,
                                  .first_message = 0,
                                  .verify = false};
                return static_cast<double>(exchange.run(burst, round, latency).elapsed) / messages;
            },
            repetitions);
        figure(fmt::format("net.engine.message.{}", name(op)).c_str(), cost, "ns", "100", "lower",
               peer);
    }
}

void verification() {
    constexpr std::size_t size = 64 << 10, slots = 1024;  // 64 MiB do not fit into the caches
    std::vector<std::uint64_t> from(size * slots / 8), to(from.size());
    auto* const data = reinterpret_cast<std::byte*>(from.data());
    for (std::size_t slot = 0; slot < slots; ++slot)
        stamp(data + slot * size, size, stamp_key(0, 1, slot));
    const auto bytes_per_ns = [&](auto pass) {
        const Nanoseconds begin = now();
        pass();
        return static_cast<double>(size * slots) / static_cast<double>(now() - begin);
    };
    const Summary copy =
        repeated([&] { return bytes_per_ns([&] { std::memcpy(to.data(), data, size * slots); }); });
    const Summary verify = repeated([&] {
        return bytes_per_ns([&] {
            for (std::size_t slot = 0; slot < slots; ++slot)
                if (first_wrong_byte(data + slot * size, size, stamp_key(0, 1, slot))) std::abort();
        });
    });
    figure("net.engine.verify", verify, "GB/s", "null", "higher",
           fmt::format(R"({{"name":"memcpy","value":{:.4g}}})", copy.median));
}

// Planning on one of 10,000 ranks: the planner's decisions for all sizes, and the rank's flows in
// all rounds.
void plan() {
    constexpr int nodes = 10'000;
    const Summary cost = repeated([] {
        const Nanoseconds begin = now();
        long sum = 0;
        for (const char* shape : {"shift", "circle", "random"}) {
            const Schedule schedule = Schedule::all_to_all(shape, nodes);
            PlannerInput input{
                .operations = 3, .budget = 60, .confidence = 0.05, .memory = 64 << 20};
            for (std::size_t size = 1; size <= (4 << 20); size *= 2) input.sizes.push_back(size);
            Planner planner(input, {.fixed = 1e-6, .slope = 1e-10},
                            {.fixed = 1e-4, .slope = 1e-10});
            planner.set_rounds(planner.affordable_rounds(schedule.rounds()));
            for (std::size_t i = 0; i < input.sizes.size(); ++i)
                sum += planner.window(input.sizes[i]) +
                       static_cast<long>(planner.deadline(i, 1) + planner.remaining(i, 1));
            for (int index = 0; index < schedule.rounds(); ++index)
                for (const Flow& flow : schedule.round(index, 1234).outgoing) sum += flow.peer;
        }
        asm volatile("" ::"r"(sum));
        return seconds(now() - begin);
    });
    figure("net.engine.plan", cost, "s", "1", "lower", "null");
}

}  // namespace

int main() {
    message_cost();
    verification();
    plan();
}
