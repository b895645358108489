// What the network engine itself costs, without a network: nanoseconds a message over a transport
// that does everything at once, verification against memcpy, and the plan for 10,000 nodes. One
// JSON line a figure; bench/net_engine.py adds what needs MPI.
#include <fmt/core.h>

#include <cstring>

#include "core/pattern.hpp"
#include "core/statistics.hpp"
#include "network/exchange.hpp"
#include "network/planner.hpp"
#include "transport/null.hpp"

namespace {

using namespace assay;
using namespace assay::network;

// `once` gives one value: the median over the repetitions. The spread is the median absolute
// deviation.
template <class Once>
Summary repeated(Once once, int repetitions = 15) {
    std::vector<double> values;
    once();  // warm
    for (int i = 0; i < repetitions; ++i) values.push_back(once());
    return summarize(values);
}

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
    Session session(bench, {30'000'000'000, 50'000});
    // Shorter than a time slice, many times: most repetitions are not interrupted, and the median
    // is one of them.
    constexpr int messages = 1000, repetitions = 501;
    Exchange exchange(session, messages * stride(8), true);
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
                const Burst burst{op, 8, messages, 1, 0, false};
                return static_cast<double>(exchange.run(burst, round, latency).elapsed) / messages;
            },
            repetitions);
        figure(fmt::format("net.engine.message.{}", name(op)).c_str(), cost, "ns", "100", "lower",
               peer);
    }
}

void verification() {
    constexpr std::size_t size = 64 << 10, slots = 1024;  // 64 MiB: from memory, as after a burst
    std::vector<std::uint64_t> from(size * slots / 8), to(from.size());
    auto* const data = reinterpret_cast<std::byte*>(from.data());
    for (std::size_t slot = 0; slot < slots; ++slot)
        stamp(data + slot * size, size, stamp_key(0, 1, slot));
    const auto rate = [&](auto pass) {
        const Nanoseconds begin = now();
        pass();
        return static_cast<double>(size * slots) / static_cast<double>(now() - begin);
    };
    const Summary copy =
        repeated([&] { return rate([&] { std::memcpy(to.data(), data, size * slots); }); });
    const Summary verify = repeated([&] {
        return rate([&] {
            for (std::size_t slot = 0; slot < slots; ++slot)
                if (first_wrong_byte(data + slot * size, size, stamp_key(0, 1, slot))) std::abort();
        });
    });
    figure("net.engine.verify", verify, "GB/s", "null", "higher",
           fmt::format(R"({{"name":"memcpy","value":{:.4g}}})", copy.median));
}

// What every rank of a group of 10,000 computes before it sends anything, with all its rounds.
void plan() {
    constexpr int nodes = 10'000;
    const Summary cost = repeated([] {
        const Nanoseconds begin = now();
        long sum = 0;
        for (const char* shape : {"shift", "circle", "random"}) {
            const Schedule schedule = Schedule::all_to_all(shape, nodes);
            Work work{.operations = 3, .budget = 60, .confidence = 0.05, .memory = 64 << 20};
            for (std::size_t size = 1; size <= (4 << 20); size *= 2) work.sizes.push_back(size);
            Planner planner(work, {1e-6, 1e-10}, {1e-4, 1e-10});
            planner.set_rounds(planner.affordable_rounds(schedule.rounds()));
            for (std::size_t i = 0; i < work.sizes.size(); ++i)
                sum += planner.window(work.sizes[i]) +
                       static_cast<long>(planner.deadline(i, 1) + planner.left(i, 1));
            for (int index = 0; index < schedule.rounds(); ++index)
                for (const Lane& lane : schedule.round(index, 1234).out) sum += lane.peer;
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
