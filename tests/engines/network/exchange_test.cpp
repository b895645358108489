// Tests of bursts of messages over the null transport (ranks as threads, with planted faults):
// every byte arrives, the right rank times it, and planted faults are found.
#include "network/exchange.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "ranks.hpp"

using namespace assay;
using namespace assay::network;

namespace {

constexpr Op all_ops[] = {Op::stream, Op::request, Op::put, Op::get};

struct RankOutcome {
    Outcome outcome;
    std::uint64_t latencies = 0;
};

// Runs `bursts` bursts of round 0, starting with `first`. Returns the last outcome of each rank.
std::vector<RankOutcome> burst(int ranks, const Faults& faults, const Schedule& schedule,
                               const Burst& first, int bursts = 1) {
    std::vector<RankOutcome> outcomes(static_cast<std::size_t>(ranks));
    on_ranks(ranks, faults, [&](Session& session) {
        const std::size_t bytes =
            static_cast<std::size_t>(schedule.max_flows() * first.window) * stride(first.size);
        Exchange exchange(session, bytes, one_sided(first.op));
        RankOutcome& result = outcomes[static_cast<std::size_t>(session.rank())];
        Histogram latency;
        Burst burst = first;
        for (int i = 0; i < bursts;
             ++i, burst.first_message += static_cast<std::uint64_t>(first.window))
            result.outcome = exchange.run(burst, schedule.round(0, session.rank()), latency);
        result.latencies = latency.total();
    });
    return outcomes;
}

Schedule for_op(Op op, int ranks, int servers) {
    return Schedule::client_server(ranks, servers, op != Op::get);
}

}  // namespace

TEST_CASE(
    "every operation moves and verifies every byte, for all sizes, windows and in-flight limits" *
    doctest::test_suite("slow")) {
    for (const Op op : all_ops)
        for (const std::size_t size : {1, 8, 100, 5000})
            for (const int inflight : {1, 3, 64})
                for (const int window : {1, 2, 150}) {
                    CAPTURE(name(op));
                    CAPTURE(size);
                    CAPTURE(inflight);
                    CAPTURE(window);
                    const int ranks = 5, servers = 2, clients = ranks - servers;
                    const auto outcomes = burst(ranks, {}, for_op(op, ranks, servers),
                                                {op, size, window, inflight, 7});
                    std::uint64_t bytes = 0, operations = 0, latencies = 0;
                    for (const RankOutcome& rank : outcomes) {
                        CHECK(rank.outcome.corrupted == 0);
                        CHECK((rank.outcome.elapsed > 0) == (rank.outcome.operations > 0));
                        CHECK(rank.latencies == (op == Op::stream ? 0 : rank.outcome.operations));
                        bytes += rank.outcome.bytes;
                        operations += rank.outcome.operations;
                        for (const FlowTime& flow : rank.outcome.flows)
                            CHECK(flow.active <= rank.outcome.elapsed);
                    }
                    const auto messages = static_cast<std::uint64_t>(servers * clients * window);
                    CHECK(bytes == messages * size);
                    CHECK(operations == messages);
                }
}

TEST_CASE("clients time operations, except streams, which their receivers time") {
    for (const Op op : all_ops) {
        const auto outcomes = burst(3, {}, for_op(op, 3, 1), {op, 64, 10, 2, 0});
        CHECK((outcomes[0].outcome.elapsed > 0) == (op == Op::stream));
        CHECK((outcomes[1].outcome.elapsed > 0) == (op != Op::stream));
    }
}

TEST_CASE(
    "an injected corruption is counted and located, and its message's bytes do not count as "
    "arrived") {
    for (const Op op : all_ops) {
        const std::size_t size = 1000, offset = 777;
        const int source = op == Op::get ? 0 : 1, destination = op == Op::get ? 1 : 0, window = 20;
        Faults faults;
        faults.flips = {{source, destination, 13, offset}, {source, destination, 4, 0}};
        const auto outcomes = burst(3, faults, for_op(op, 3, 1), {op, size, window, 1, 100});
        const Outcome& target = outcomes[static_cast<std::size_t>(destination)].outcome;
        CAPTURE(name(op));
        CHECK(target.corrupted == 2);
        CHECK(target.bytes ==
              static_cast<std::uint64_t>(destination == 0 ? 2 * window - 2 : window - 2) * size);
        REQUIRE(target.corruptions.size() == 2);
        CHECK(target.corrupted_sources == std::vector<int>{source, source});
        CHECK(target.corruptions[0].message == 104);
        CHECK(target.corruptions[0].offset == 0);
        CHECK(target.corruptions[1].message == 113);
        CHECK(target.corruptions[1].offset == offset);
        CHECK((target.corruptions[1].observed ^ target.corruptions[1].expected) ==
              std::uint64_t{16} << 8 * (offset % 8));
        for (const int rank : {0, 1, 2})
            if (rank != destination)
                CHECK(outcomes[static_cast<std::size_t>(rank)].outcome.corrupted == 0);
    }
}

TEST_CASE("without verification, corruption is not detected") {
    Faults faults;
    faults.flips = {{0, 1, 0, 0}};
    const auto outcomes =
        burst(2, faults, Schedule::all_to_all("shift", 2), {Op::stream, 64, 4, 1, 0, false});
    CHECK(outcomes[1].outcome.corrupted == 0);
    CHECK(outcomes[1].outcome.bytes == 4 * 64);
}

TEST_CASE("data of an earlier burst in the same slots do not pass as those of a later one") {
    for (const Op op : all_ops) {
        const auto outcomes = burst(2, {}, for_op(op, 2, 1), {op, 24, 9, 4, 0}, 5);
        CHECK(outcomes[0].outcome.corrupted + outcomes[1].outcome.corrupted == 0);
        CHECK(outcomes[0].outcome.bytes + outcomes[1].outcome.bytes > 0);
    }
}

TEST_CASE("in a round of pairs each rank sends requests and acknowledges others concurrently") {
    const auto outcomes =
        burst(5, {}, Schedule::all_to_all("shift", 5), {Op::request, 100, 9, 2, 0});
    for (const auto& rank : outcomes) {
        CHECK(rank.latencies == 9);
        CHECK(rank.outcome.bytes == 9 * 100);
        CHECK(rank.outcome.corrupted == 0);
    }
}

TEST_CASE(
    "the flows of a slow sender fill its row with low rates, those of a slow receiver its column") {
    const int ranks = 4;
    const Schedule schedule = Schedule::all_to_all("shift", ranks);
    for (const bool transmit : {true, false}) {
        Faults faults;
        faults.rate = 400e6;
        faults.simulated_time = true;
        (transmit ? faults.transmit : faults.receive)[2] = 40e6;
        std::vector<std::vector<double>> seconds_of(ranks, std::vector<double>(ranks));
        on_ranks(ranks, faults, [&](Session& session) {
            Exchange exchange(session, 20 * stride(20000), false);
            Histogram latency;
            for (int index = 0; index < schedule.rounds(); ++index) {
                const Outcome outcome =
                    exchange.run({Op::stream, 20000, 20, 2, static_cast<std::uint64_t>(index) * 20},
                                 schedule.round(index, session.rank()), latency);
                for (const FlowTime& flow : outcome.flows)
                    seconds_of[static_cast<std::size_t>(flow.peer)]
                              [static_cast<std::size_t>(session.rank())] = seconds(flow.active);
            }
        });
        for (std::size_t from = 0; from < ranks; ++from)
            for (std::size_t to = 0; to < ranks; ++to)
                if (from != to) {
                    CAPTURE(from);
                    CAPTURE(to);
                    CHECK(seconds_of[from][to] ==
                          doctest::Approx(20 * 20000 / ((transmit ? from : to) == 2 ? 40e6 : 400e6))
                              .epsilon(0.01)
                              .scale(0));
                }
    }
}

TEST_CASE("a rank that stops answering is named by the ranks that wait for it") {
    for (const Op op : {Op::stream, Op::request, Op::get}) {
        Faults faults;
        faults.silent_after[2] = 12;  // operations: after the start-up, within the burst
        faults.simulated_time = true;
        Recording recording;
        const int ranks = 4;
        const Schedule schedule = Schedule::all_to_all("shift", ranks);
        CHECK_THROWS_AS(run_ranks(ranks, faults,
                                  [&](Transport& transport) {
                                      Bench bench{recording.sink, transport};
                                      Session session(bench, long_limits);
                                      Exchange exchange(session, 300 * stride(64), one_sided(op));
                                      Histogram latency;
                                      exchange.run({op, 64, 300, 2, 0},
                                                   schedule.round(0, transport.rank()), latency);
                                  }),
                        Aborted);
        const auto failures = recording.records_of("failure");
        REQUIRE_FALSE(failures.empty());
        CAPTURE(failures[0].dump());
        CHECK(std::ranges::any_of(failures, [](const Json& failure) {
            return failure["subject"].value("peer", "").ends_with(":2");
        }));
        CHECK(std::ranges::none_of(failures, [](const Json& failure) {
            return failure["subject"].value("host", "").ends_with(":2");
        }));
    }
}
