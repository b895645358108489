// Communication schedules: which rank sends to which, round by round.
//
// A flow goes from one rank to another. Each rank computes its outgoing and incoming flows from
// (schedule, round, rank) alone, so a schedule for any number of ranks costs nothing to build and
// needs no communication.
//
//   shift      round k: to (r + k) mod N, from (r - k) mod N. Any N. No link is shared on
//              full-bisection fat trees with destination-based routing and ranks in leaf order.
//   circle     isolated pairs, both directions at once, by the circle method of round-robin
//              tournaments. With odd N one rank pauses in each round.
//   xor        pairs r and r ^ k; N is a power of two.
//   random     shift over a seeded shuffle of the ranks. Partners ignore the topology, so flows
//              collide in the network: a test of congestion that does not locate faults.
//   bipartite  one round: every client with every server.
//   matched    the given rounds of disjoint pairs, in one direction.
//
// In all but the last two, every ordered pair of ranks occurs exactly once over all rounds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace assay::network {

using RankPair = std::pair<int, int>;  // from, to

// A flow seen from one of its ends. Each rank numbers its flows by direction from 0; the index
// determines where the flow's messages are in the rank's buffers.
struct Flow {
    int peer;
    int local_index;  // at this rank
    int peer_index;   // of the same flow at the peer
};

// The flows of one rank in one round.
struct Round {
    std::vector<Flow> outgoing, incoming;
};

class Schedule {
public:
    // `shape`: "shift", "circle", "xor" or "random". Throws Error for an unknown shape, fewer than
    // 2 ranks, or a number of ranks that the shape does not support.
    static Schedule all_to_all(std::string_view shape, int ranks);
    // Ranks below `servers` are servers. Flows go to the servers, or from them.
    static Schedule client_server(int ranks, int servers, bool to_servers);
    static Schedule listed(const std::vector<RankPair>& pairs);          // one pair per round
    static Schedule matched(std::vector<std::vector<RankPair>> rounds);  // disjoint in each round
    // The steps of a file (core/steps.hpp) as rounds. Throws Error.
    static Schedule from_file(const std::string& path, int ranks);

    int rounds() const { return rounds_; }
    Round round(int index, int rank) const;

    // The most flows that one rank has in one direction in a round.
    int max_flows() const { return max_flows_; }

private:
    enum class Shape { shift, circle, pairwise_xor, random, bipartite, matched };
    Schedule(Shape shape, int ranks, int rounds) : shape_(shape), ranks_(ranks), rounds_(rounds) {}

    int circle_partner(int index, int rank) const;
    Round bipartite(int rank) const;

    Shape shape_;
    int ranks_ = 0, rounds_ = 0, max_flows_ = 1;
    int servers_ = 0;
    bool to_servers_ = true;
    std::vector<std::vector<RankPair>> matched_;
    std::vector<int> shuffled_, position_;  // the shuffle and its inverse
};

// Pairs of ranks that are one or two apart in a ring, each once.
std::vector<RankPair> near_edges(int ranks);

// Each client (the ranks from `servers` on) with two servers, or with the only one.
std::vector<RankPair> client_edges(int ranks, int servers);

// Distributes pairs over rounds so that a rank occurs at most once in each round.
std::vector<std::vector<RankPair>> disjoint_rounds(const std::vector<RankPair>& pairs);

// Chooses `count` of `rounds` rounds, ascending: a random one from each of `count` equal parts, so
// that near and far partners are covered and no period of the topology is hit. The seed is fixed:
// every rank chooses the same rounds.
std::vector<int> sample_rounds(int rounds, int count);

}  // namespace assay::network
