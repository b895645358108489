// One burst over the null transport: what arrives, what is timed, and that planted faults are
// found.
#include "network/exchange.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <mutex>

#include "ranks.hpp"

using namespace assay;
using namespace assay::network;

namespace {

constexpr Op all_ops[] = {Op::stream, Op::request, Op::put, Op::get};

struct Seen {
    Outcome outcome;
    std::uint64_t latencies = 0;
};

// One burst of round 0, by rank.
std::vector<Seen> burst(int ranks, const Faults& faults, const Schedule& schedule,
                        const Burst& what, int bursts = 1) {
    std::vector<Seen> seen(static_cast<std::size_t>(ranks));
    on_ranks(ranks, faults, [&](Session& session) {
        const std::size_t place =
            static_cast<std::size_t>(schedule.lanes() * what.window) * stride(what.size);
        Exchange exchange(session, place, one_sided(what.op));
        Seen& mine = seen[static_cast<std::size_t>(session.rank())];
        Histogram latency;
        Burst one = what;
        for (int i = 0; i < bursts; ++i, one.first += static_cast<std::uint64_t>(what.window))
            mine.outcome = exchange.run(one, schedule.round(0, session.rank()), latency);
        mine.latencies = latency.total();
    });
    return seen;
}

Schedule for_op(Op op, int ranks, int servers) {
    return Schedule::client_server(ranks, servers, op != Op::get);
}

}  // namespace

TEST_CASE("every operation moves and verifies every byte, whatever the size, window and flight") {
    for (const Op op : all_ops)
        for (const std::size_t size : {1, 8, 100, 5000})
            for (const int inflight : {1, 3, 64})
                for (const int window : {1, 2, 150}) {
                    CAPTURE(name(op));
                    CAPTURE(size);
                    CAPTURE(inflight);
                    CAPTURE(window);
                    const int ranks = 5, servers = 2, clients = ranks - servers;
                    const auto seen = burst(ranks, {}, for_op(op, ranks, servers),
                                            {op, size, window, inflight, 7});
                    std::uint64_t bytes = 0, operations = 0, latencies = 0;
                    for (const Seen& one : seen) {
                        CHECK(one.outcome.corrupted == 0);
                        CHECK((one.outcome.elapsed > 0) == (one.outcome.operations > 0));
                        CHECK(one.latencies == (op == Op::stream ? 0 : one.outcome.operations));
                        bytes += one.outcome.bytes;
                        operations += one.outcome.operations;
                        for (const FlowTime& flow : one.outcome.flows)
                            CHECK(flow.busy <= one.outcome.elapsed);
                    }
                    const auto messages = static_cast<std::uint64_t>(servers * clients * window);
                    CHECK(bytes == messages * size);
                    CHECK(operations == messages);
                }
}

TEST_CASE("initiators time: clients, but for a stream, which its receivers time") {
    for (const Op op : all_ops) {
        const auto seen = burst(3, {}, for_op(op, 3, 1), {op, 64, 10, 2, 0});
        CHECK((seen[0].outcome.elapsed > 0) == (op == Op::stream));
        CHECK((seen[1].outcome.elapsed > 0) == (op != Op::stream));
    }
}

TEST_CASE("a planted corruption is counted and located exactly, and its bytes do not count") {
    for (const Op op : all_ops) {
        const std::size_t size = 1000, offset = 777;
        const int source = op == Op::get ? 0 : 1, destination = op == Op::get ? 1 : 0, window = 20;
        Faults faults;
        faults.flips = {{source, destination, 13, offset}, {source, destination, 4, 0}};
        const auto seen = burst(3, faults, for_op(op, 3, 1), {op, size, window, 1, 100});
        const Outcome& there = seen[static_cast<std::size_t>(destination)].outcome;
        CAPTURE(name(op));
        CHECK(there.corrupted == 2);
        CHECK(there.bytes ==
              static_cast<std::uint64_t>(destination == 0 ? 2 * window - 2 : window - 2) * size);
        REQUIRE(there.wrong.size() == 2);
        CHECK(there.wrong_from == std::vector<int>{source, source});
        CHECK(there.wrong[0].message == 104);
        CHECK(there.wrong[0].offset == 0);
        CHECK(there.wrong[1].message == 113);
        CHECK(there.wrong[1].offset == offset);
        CHECK((there.wrong[1].observed ^ there.wrong[1].expected) == std::uint64_t{16}
                                                                         << 8 * (offset % 8));
        for (const int rank : {0, 1, 2})
            if (rank != destination)
                CHECK(seen[static_cast<std::size_t>(rank)].outcome.corrupted == 0);
    }
}

TEST_CASE("unverified, corruption passes: that is what verifying is for") {
    Faults faults;
    faults.flips = {{0, 1, 0, 0}};
    const auto seen =
        burst(2, faults, Schedule::all_to_all("shift", 2), {Op::stream, 64, 4, 1, 0, false});
    CHECK(seen[1].outcome.corrupted == 0);
    CHECK(seen[1].outcome.bytes == 4 * 64);
}

TEST_CASE("later bursts over the same places are told from earlier ones") {
    for (const Op op : all_ops) {
        const auto seen = burst(2, {}, for_op(op, 2, 1), {op, 24, 9, 4, 0}, 5);
        CHECK(seen[0].outcome.corrupted + seen[1].outcome.corrupted == 0);
        CHECK(seen[0].outcome.bytes + seen[1].outcome.bytes > 0);
    }
}

TEST_CASE("a round of pairs may ask too: each rank asks and answers at once") {
    const auto seen = burst(5, {}, Schedule::all_to_all("shift", 5), {Op::request, 100, 9, 2, 0});
    for (const auto& one : seen) {
        CHECK(one.latencies == 9);
        CHECK(one.outcome.bytes == 9 * 100);
        CHECK(one.outcome.corrupted == 0);
    }
}

TEST_CASE(
    "a slow side is found by the rank that times it: row of a slow sender, column of a slow "
    "receiver") {
    const int ranks = 4;
    const Schedule schedule = Schedule::all_to_all("shift", ranks);
    for (const bool transmit : {true, false}) {
        Faults faults;
        faults.rate = 400e6;
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
                              [static_cast<std::size_t>(session.rank())] = seconds(flow.busy);
            }
        });
        for (std::size_t from = 0; from < ranks; ++from)
            for (std::size_t to = 0; to < ranks; ++to)
                if (from != to && (transmit ? from : to) == 2)
                    CHECK(seconds_of[from][to] > 0.9 * 20 * 20000 / 40e6);
        // The others are not held up by the slow one: the fastest of them ran at its own rate or
        // near it.
        CHECK(std::min(seconds_of[0][1], seconds_of[1][0]) < 0.5 * 20 * 20000 / 40e6);
    }
}

TEST_CASE("a rank that stops answering is named by those that wait for it") {
    for (const Op op : {Op::stream, Op::request, Op::get}) {
        Faults faults;
        faults.silent_after[2] = 12;  // past the start, within the burst
        Recorded records;
        const int ranks = 4;
        const Schedule schedule = Schedule::all_to_all("shift", ranks);
        CHECK_THROWS_AS(
            run_null_ranks(ranks, faults,
                           [&](Transport& transport) {
                               Bench bench{records.sink, transport};
                               Session session(bench, {200'000'000, 0});
                               Exchange exchange(session, 300 * stride(64), one_sided(op));
                               Histogram latency;
                               exchange.run({op, 64, 300, 2, 0},
                                            schedule.round(0, transport.rank()), latency);
                           }),
            Aborted);
        const auto failures = records.of("failure");
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
