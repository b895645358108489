// Who moves bytes to whom, round by round: the patterns of the measurements as data.
//
// A flow goes from one rank to another. A rank sees the flows of a round as lanes: those that leave
// it and those that arrive. Everything is computed from (schedule, round, rank) alone, so that a
// plan for any number of ranks costs nothing to build and needs no exchange.
//
//   shift      round k: to (r + k) mod N, from (r - k) mod N. Any N. On full-bisection fat trees
//              with destination-based routing and ranks in leaf order no link is shared.
//   circle     isolated pairs, both directions at once, by the circle method of round robin
//              tournaments; with odd N one rank a round has a bye.
//   exclusive  ("xor") pairs r and r ^ k; N a power of two.
//   random     shift over a seeded shuffle of the ranks: partners without regard to the topology,
//              so flows collide in the network. A test of congestion, not a finder of faults.
//   bipartite  one round: every client with every server.
//   listed     the pairs given, one a round, alone.
//
// In all but the last two every ordered pair of ranks appears exactly once over all rounds.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace assay::network {

// A flow seen from one of its ends. Lanes are numbered at each rank and direction: the lane says
// where in the rank's buffers the flow's messages lie.
struct Lane {
    int peer;
    int here;   // number of the lane at this rank
    int there;  // number of the same flow's lane at the peer
};

struct Round {
    std::vector<Lane> out, in;
};

class Schedule {
public:
    // `shape`: "shift", "circle", "xor" or "random". Throws Error for an unknown one, fewer than 2
    // ranks, or one that the number of ranks does not fit.
    static Schedule all_to_all(std::string_view shape, int ranks);
    // Ranks below `servers` are servers. Flows go to the servers, or from them.
    static Schedule client_server(int ranks, int servers, bool to_servers);
    static Schedule listed(std::vector<std::pair<int, int>> pairs);

    int rounds() const { return rounds_; }
    Round round(int index, int rank) const;

    // At most that many lanes at one rank and direction in a round.
    int lanes() const { return lanes_; }

private:
    enum class Shape { shift, circle, exclusive, random, bipartite, listed };
    Schedule(Shape shape, int ranks, int rounds) : shape_(shape), ranks_(ranks), rounds_(rounds) {}

    int circle_partner(int index, int rank) const;
    Round bipartite(int rank) const;

    Shape shape_;
    int ranks_ = 0, rounds_ = 0, lanes_ = 1;
    int servers_ = 0;
    bool to_servers_ = true;
    std::vector<std::pair<int, int>> pairs_;
    std::vector<int> order_, place_;  // the shuffle and its inverse
};

// `count` of `rounds` rounds, ascending: one at a random place in each of `count` equal parts, so
// that neither near nor far partners are missed and no period of the topology is hit. Seeded: the
// same on every rank.
std::vector<int> sample_rounds(int rounds, int count);

}  // namespace assay::network
