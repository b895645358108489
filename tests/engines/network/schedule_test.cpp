// Property tests of schedules of flows, for many numbers of ranks: which pairs occur, how often,
// and in which round.
#include "network/schedule.hpp"

#include <unistd.h>

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "core/error.hpp"

using namespace assay;
using namespace assay::network;

namespace {

using Pair = std::pair<int, int>;

// How often each ordered pair occurs over all rounds, as its source sees it. Also checks in each
// round that the destination sees the same flow.
std::map<Pair, int> pairs_of(const Schedule& schedule, int ranks) {
    std::map<Pair, int> count;
    for (int index = 0; index < schedule.rounds(); ++index) {
        std::set<Pair> leaving, arriving;
        for (int rank = 0; rank < ranks; ++rank) {
            const Round round = schedule.round(index, rank);
            for (const Flow& flow : round.outgoing) leaving.insert({rank, flow.peer});
            for (const Flow& flow : round.incoming) arriving.insert({flow.peer, rank});
        }
        CHECK(leaving == arriving);
        for (const Pair& pair : leaving) ++count[pair];
    }
    return count;
}

void check_all_pairs_once(const std::map<Pair, int>& count, int ranks) {
    CHECK(count.size() == static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks - 1));
    for (const auto& [pair, times] : count) {
        CHECK(times == 1);
        CHECK(pair.first != pair.second);
    }
}

}  // namespace

TEST_CASE("every ordered pair occurs exactly once, odd numbers of ranks too") {
    for (int ranks = 2; ranks <= 33; ++ranks)
        for (const char* shape : {"shift", "circle", "xor", "random"}) {
            if (std::string(shape) == "xor" && (ranks & (ranks - 1))) continue;
            CAPTURE(shape);
            CAPTURE(ranks);
            check_all_pairs_once(pairs_of(Schedule::all_to_all(shape, ranks), ranks), ranks);
        }
}

TEST_CASE("in circle and xor a rank exchanges with one partner per round, or is idle") {
    for (int ranks = 2; ranks <= 33; ++ranks)
        for (const char* shape : {"circle", "xor"}) {
            if (std::string(shape) == "xor" && (ranks & (ranks - 1))) continue;
            const Schedule schedule = Schedule::all_to_all(shape, ranks);
            for (int index = 0; index < schedule.rounds(); ++index) {
                int idle_ranks = 0;
                for (int rank = 0; rank < ranks; ++rank) {
                    const Round round = schedule.round(index, rank);
                    REQUIRE(round.outgoing.size() == round.incoming.size());
                    if (round.outgoing.empty()) ++idle_ranks;
                    else CHECK(round.outgoing[0].peer == round.incoming[0].peer);
                }
                CHECK(idle_ranks == ranks % 2);
            }
        }
}

TEST_CASE(
    "client/server: every client meets every server once, and flow indices match at both ends") {
    for (int ranks = 2; ranks <= 12; ++ranks)
        for (int servers = 1; servers < ranks; ++servers)
            for (const bool to_servers : {true, false}) {
                const Schedule schedule = Schedule::client_server(ranks, servers, to_servers);
                const auto count = pairs_of(schedule, ranks);
                CHECK(count.size() == static_cast<std::size_t>(servers * (ranks - servers)));
                for (const auto& [pair, times] : count) {
                    CHECK(times == 1);
                    CHECK((pair.second < servers) == to_servers);
                }
                for (int rank = 0; rank < ranks; ++rank)
                    for (const Flow& flow : schedule.round(0, rank).outgoing) {
                        const Flow other = schedule.round(0, flow.peer)
                                               .incoming[static_cast<std::size_t>(flow.peer_index)];
                        CHECK(other.peer == rank);
                        CHECK(other.local_index == flow.peer_index);
                        CHECK(other.peer_index == flow.local_index);
                        CHECK(flow.local_index < schedule.max_flows());
                    }
            }
}

TEST_CASE("a round of listed pairs has a single flow") {
    const Schedule schedule = Schedule::listed({{0, 3}, {3, 0}, {1, 2}});
    CHECK(schedule.rounds() == 3);
    CHECK(schedule.round(0, 0).outgoing[0].peer == 3);
    CHECK(schedule.round(1, 0).incoming[0].peer == 3);
    CHECK(schedule.round(2, 0).outgoing.empty());
    CHECK(schedule.round(2, 0).incoming.empty());
}

TEST_CASE("near edges join every rank to ranks at a distance of 1 or 2, once in a round") {
    for (const int ranks : {2, 3, 4, 5, 8, 9, 100}) {
        const std::vector<RankPair> edges = near_edges(ranks);
        CHECK(std::set<RankPair>(edges.begin(), edges.end()).size() == edges.size());
        std::set<int> joined;
        for (const auto& [a, b] : edges) {
            CHECK(a < b);
            CHECK(std::min(b - a, ranks - (b - a)) <= 2);
            joined.insert({a, b});
        }
        CHECK(joined.size() == static_cast<std::size_t>(ranks));
        const auto rounds = disjoint_rounds(edges);
        CHECK(rounds.size() <= 7);  // each rank has four partners at most
        std::size_t pairs = 0;
        for (const auto& round : rounds) {
            std::set<int> ranks_in_round;
            for (const auto& [a, b] : round) ranks_in_round.insert({a, b});
            CHECK(ranks_in_round.size() == 2 * round.size());
            pairs += round.size();
        }
        CHECK(pairs == edges.size());
    }
}

TEST_CASE("client edges join each client to two servers, never to a client") {
    const auto edges = client_edges(7, 2);
    CHECK(edges.size() == 10);
    for (const auto& [server, client] : edges) CHECK((server < 2 && client >= 2));
    CHECK(client_edges(5, 1).size() == 4);
    const Schedule schedule = Schedule::matched(disjoint_rounds(edges));
    for (int round = 0; round < schedule.rounds(); ++round)
        for (int rank = 0; rank < 7; ++rank)
            CHECK(schedule.round(round, rank).outgoing.size() +
                      schedule.round(round, rank).incoming.size() <=
                  1);
}

TEST_CASE("invalid arguments are refused") {
    CHECK_THROWS_AS(Schedule::all_to_all("xor", 6), Error);
    CHECK_THROWS_AS(Schedule::all_to_all("spiral", 6), Error);
    CHECK_THROWS_AS(Schedule::all_to_all("shift", 1), Error);
    CHECK_THROWS_AS(Schedule::client_server(4, 4, true), Error);
    CHECK_THROWS_AS(Schedule::client_server(4, 0, true), Error);
}

TEST_CASE("sampled rounds are ascending, distinct, evenly spread and reproducible") {
    for (const int rounds : {1, 9, 10, 100, 9999})
        for (const int count : {1, 3, 10, 200}) {
            const std::vector<int> selected = sample_rounds(rounds, count);
            CHECK(selected == sample_rounds(rounds, count));
            const int n = std::min(rounds, count);
            REQUIRE(selected.size() == static_cast<std::size_t>(n));
            for (int i = 0; i < n; ++i) {
                CHECK(selected[static_cast<std::size_t>(i)] >= rounds * i / n);
                CHECK(selected[static_cast<std::size_t>(i)] < rounds * (i + 1) / n);
            }
        }
}

TEST_CASE("each line of a schedule file is a round, and an error names the line") {
    const std::string path =
        (std::filesystem::temp_directory_path() / ("assay-steps-" + std::to_string(getpid())))
            .string();
    const auto read_schedule = [&](const std::string& text) {
        std::ofstream(path) << text;
        return Schedule::from_file(path, 3);
    };
    const Schedule schedule =
        read_schedule("# three ranks\n0 1 2\n1 2 0 # a shift\n\n2 -1 1\n-1 0 -1\n");
    CHECK(schedule.rounds() == 4);
    check_all_pairs_once(pairs_of(schedule, 3), 3);
    for (const auto& [text, message] : std::map<std::string, std::string>{
             {"1 2\n", ":1: 2 destinations for 3 ranks"},
             {"1 2 0\n1 2 3\n", ":2: there is no rank 3 among 3"},
             {"1 -2 0\n", ":1: there is no rank -2 among 3"},
             {"2 2 1\n", ":1: rank 2 receives from two ranks"},
             {"a b c\n", ":1: not a list of ranks"},
             {"99999999999 0 0\n", ":1: not a list of ranks"},
             {"# nothing\n", ": no flow in the schedule"},
             {"0 1 2\n", ": no flow in the schedule"},
         }) {
        try {
            read_schedule(text);
            FAIL("accepted: " << text);
        } catch (const Error& error) {
            CHECK(error.what() == path + message);
        }
    }
    std::filesystem::remove(path);
    CHECK_THROWS_AS(Schedule::from_file(path, 3), Error);
    CHECK_THROWS_AS(Schedule::from_file("/dev/zero", 3), Error);
}
