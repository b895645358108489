// The flows of each rank in each round of a schedule (see schedule.hpp).
#include "network/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "core/error.hpp"
#include "core/steps.hpp"

namespace assay::network {
namespace {

constexpr std::uint64_t seed = 20231;  // arbitrary, the same on every rank and in every run

Flow flow_alone(int peer) { return {peer, 0, 0}; }

}  // namespace

Schedule Schedule::all_to_all(std::string_view shape, int ranks) {
    if (ranks < 2)
        throw Error(fmt::format("all-to-all needs at least 2 ranks, this job has {}", ranks),
                    "start it under an MPI launcher, or name more hosts");
    if (shape == "shift") return {Shape::shift, ranks, ranks - 1};
    if (shape == "circle") return {Shape::circle, ranks, ranks % 2 ? ranks : ranks - 1};
    if (shape == "xor") {
        if ((ranks & (ranks - 1)) != 0)
            throw Error(
                fmt::format("schedule xor needs a power of two ranks, this job has {}", ranks),
                "use shift, or circle for isolated pairs");
        return {Shape::pairwise_xor, ranks, ranks - 1};
    }
    if (shape != "random")
        throw Error(fmt::format("unknown schedule '{}'", shape),
                    "choose shift, circle, xor or random");
    Schedule schedule(Shape::random, ranks, ranks - 1);
    schedule.shuffled_.resize(static_cast<std::size_t>(ranks));
    std::iota(schedule.shuffled_.begin(), schedule.shuffled_.end(), 0);
    std::shuffle(schedule.shuffled_.begin(), schedule.shuffled_.end(), std::mt19937_64(seed));
    schedule.position_.resize(schedule.shuffled_.size());
    for (std::size_t i = 0; i < schedule.shuffled_.size(); ++i)
        schedule.position_[static_cast<std::size_t>(schedule.shuffled_[i])] = static_cast<int>(i);
    return schedule;
}

Schedule Schedule::client_server(int ranks, int servers, bool to_servers) {
    if (servers < 1 || servers >= ranks)
        throw Error(
            fmt::format("{} servers of {} ranks leave no client or no server", servers, ranks),
            "give 1 server to one less than the number of ranks");
    Schedule schedule(Shape::bipartite, ranks, 1);
    schedule.servers_ = servers;
    schedule.to_servers_ = to_servers;
    schedule.max_flows_ = std::max(servers, ranks - servers);
    return schedule;
}

Schedule Schedule::listed(const std::vector<RankPair>& pairs) {
    std::vector<std::vector<RankPair>> rounds;
    rounds.reserve(pairs.size());
    for (const RankPair& pair : pairs) rounds.push_back({pair});
    return matched(std::move(rounds));
}

Schedule Schedule::matched(std::vector<std::vector<RankPair>> rounds) {
    Schedule schedule(Shape::matched, 0, static_cast<int>(rounds.size()));
    schedule.matched_ = std::move(rounds);
    return schedule;
}

Schedule Schedule::from_file(const std::string& path, int ranks) {
    std::vector<std::vector<RankPair>> rounds;
    for (const std::vector<int>& step : read_steps(path, ranks)) {
        std::vector<RankPair>& round = rounds.emplace_back();
        for (int rank = 0; rank < ranks; ++rank)
            if (const int to = step[static_cast<std::size_t>(rank)]; to >= 0)
                round.emplace_back(rank, to);
    }
    return matched(std::move(rounds));
}

Round Schedule::round(int index, int rank) const {
    const int k = index + 1;
    const auto wrap = [this](int r) { return (r % ranks_ + ranks_) % ranks_; };
    switch (shape_) {
        case Shape::shift: return {{flow_alone(wrap(rank + k))}, {flow_alone(wrap(rank - k))}};
        case Shape::pairwise_xor: return {{flow_alone(rank ^ k)}, {flow_alone(rank ^ k)}};
        case Shape::circle: {
            const int partner = circle_partner(index, rank);
            if (partner < 0) return {};
            return {{flow_alone(partner)}, {flow_alone(partner)}};
        }
        case Shape::random: {
            const int position = position_[static_cast<std::size_t>(rank)];
            const auto rank_at = [&](int p) {
                return shuffled_[static_cast<std::size_t>(wrap(p))];
            };
            return {{flow_alone(rank_at(position + k))}, {flow_alone(rank_at(position - k))}};
        }
        case Shape::bipartite: return bipartite(rank);
        case Shape::matched: break;
    }
    Round round;
    for (const auto& [source, destination] : matched_[static_cast<std::size_t>(index)]) {
        if (rank == source) round.outgoing.push_back(flow_alone(destination));
        if (rank == destination) round.incoming.push_back(flow_alone(source));
    }
    return round;
}

// The circle method: of n positions (one is empty for an odd number of ranks) the last one is fixed
// and the others rotate. Positions a and b meet in round (a + b) mod (n - 1); the last one meets a
// in round 2a mod (n - 1).
int Schedule::circle_partner(int index, int rank) const {
    const int rotating = ranks_ % 2 ? ranks_ : ranks_ - 1;  // odd
    const int last = rotating;                              // a rank only if their number is even
    int partner = rank == last ? (index * ((rotating + 1) / 2)) % rotating
                               : (index - rank + rotating) % rotating;
    if (partner == rank) partner = last;
    return partner < ranks_ ? partner : -1;
}

Round Schedule::bipartite(int rank) const {
    std::vector<Flow> flows;
    if (rank < servers_)
        for (int client = servers_; client < ranks_; ++client)
            flows.push_back({client, client - servers_, rank});
    else
        for (int server = 0; server < servers_; ++server)
            flows.push_back({server, server, rank - servers_});
    const bool out = (rank < servers_) != to_servers_;
    return out ? Round{std::move(flows), {}} : Round{{}, std::move(flows)};
}

std::vector<RankPair> near_edges(int ranks) {
    std::set<RankPair> edges;
    for (int distance : {1, 2})
        for (int rank = 0; rank < ranks; ++rank) {
            const int other = (rank + distance) % ranks;
            if (other != rank) edges.insert(std::minmax({rank, other}));
        }
    return {edges.begin(), edges.end()};
}

std::vector<RankPair> client_edges(int ranks, int servers) {
    std::vector<RankPair> edges;
    for (int client = servers; client < ranks; ++client)
        for (int k = 0; k < std::min(2, servers); ++k)
            edges.emplace_back((client - servers + k) % servers, client);
    return edges;
}

std::vector<std::vector<RankPair>> disjoint_rounds(const std::vector<RankPair>& pairs) {
    std::vector<std::vector<RankPair>> rounds;
    std::map<int, std::set<std::size_t>> rounds_of_rank;
    for (const RankPair& pair : pairs) {
        const std::set<std::size_t>&first = rounds_of_rank[pair.first],
              &second = rounds_of_rank[pair.second];
        std::size_t round = 0;
        while (first.contains(round) || second.contains(round)) ++round;
        if (round == rounds.size()) rounds.emplace_back();
        rounds[round].push_back(pair);
        rounds_of_rank[pair.first].insert(round);
        rounds_of_rank[pair.second].insert(round);
    }
    return rounds;
}

std::vector<int> sample_rounds(int rounds, int count) {
    count = std::min(count, rounds);
    std::mt19937_64 random(seed);
    std::vector<int> chosen;
    for (int i = 0; i < count; ++i) {
        const auto begin = std::int64_t{rounds} * i / count,
                   end = std::int64_t{rounds} * (i + 1) / count;
        chosen.push_back(static_cast<int>(
            begin + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end - begin))));
    }
    return chosen;
}

}  // namespace assay::network
