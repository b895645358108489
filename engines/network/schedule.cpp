#include "network/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "core/error.hpp"

namespace assay::network {
namespace {

constexpr std::uint64_t seed = 20231;  // any, but the same on every rank and in every run

Lane single(int peer) { return {peer, 0, 0}; }

}  // namespace

Schedule Schedule::all_to_all(std::string_view shape, int ranks) {
    if (ranks < 2)
        throw Error(fmt::format("all-to-all needs at least 2 ranks and has {}", ranks),
                    "start it under an MPI launcher, or name more hosts");
    if (shape == "shift") return {Shape::shift, ranks, ranks - 1};
    if (shape == "circle") return {Shape::circle, ranks, ranks % 2 ? ranks : ranks - 1};
    if (shape == "xor") {
        if ((ranks & (ranks - 1)) != 0)
            throw Error(fmt::format("schedule xor needs a power of two ranks and has {}", ranks),
                        "use shift, or circle for isolated pairs");
        return {Shape::exclusive, ranks, ranks - 1};
    }
    if (shape != "random")
        throw Error(fmt::format("unknown schedule '{}'", shape),
                    "one of shift, circle, xor, random");
    Schedule schedule(Shape::random, ranks, ranks - 1);
    schedule.order_.resize(static_cast<std::size_t>(ranks));
    std::iota(schedule.order_.begin(), schedule.order_.end(), 0);
    std::shuffle(schedule.order_.begin(), schedule.order_.end(), std::mt19937_64(seed));
    schedule.place_.resize(schedule.order_.size());
    for (std::size_t i = 0; i < schedule.order_.size(); ++i)
        schedule.place_[static_cast<std::size_t>(schedule.order_[i])] = static_cast<int>(i);
    return schedule;
}

Schedule Schedule::client_server(int ranks, int servers, bool to_servers) {
    if (servers < 1 || servers >= ranks)
        throw Error(
            fmt::format("{} servers of {} ranks leave no client or no server", servers, ranks),
            "give from 1 server to one less than there are ranks");
    Schedule schedule(Shape::bipartite, ranks, 1);
    schedule.servers_ = servers;
    schedule.to_servers_ = to_servers;
    schedule.lanes_ = std::max(servers, ranks - servers);
    return schedule;
}

Schedule Schedule::listed(std::vector<std::pair<int, int>> pairs) {
    Schedule schedule(Shape::listed, 0, static_cast<int>(pairs.size()));
    schedule.pairs_ = std::move(pairs);
    return schedule;
}

Round Schedule::round(int index, int rank) const {
    const int k = index + 1;
    const auto wrap = [this](int r) { return (r % ranks_ + ranks_) % ranks_; };
    switch (shape_) {
        case Shape::shift: return {{single(wrap(rank + k))}, {single(wrap(rank - k))}};
        case Shape::exclusive: return {{single(rank ^ k)}, {single(rank ^ k)}};
        case Shape::circle: {
            const int partner = circle_partner(index, rank);
            if (partner < 0) return {};
            return {{single(partner)}, {single(partner)}};
        }
        case Shape::random: {
            const int place = place_[static_cast<std::size_t>(rank)];
            const auto at = [&](int p) { return order_[static_cast<std::size_t>(wrap(p))]; };
            return {{single(at(place + k))}, {single(at(place - k))}};
        }
        case Shape::bipartite: return bipartite(rank);
        case Shape::listed: break;
    }
    Round round;
    const auto [source, destination] = pairs_[static_cast<std::size_t>(index)];
    if (rank == source) round.out.push_back(single(destination));
    if (rank == destination) round.in.push_back(single(source));
    return round;
}

// With n places on a circle (one of them empty when the number of ranks is odd), the last stays and
// the others turn: places a and b meet in the round (a + b) mod (n - 1), the last one meets a where
// 2a is that.
int Schedule::circle_partner(int index, int rank) const {
    const int turning = ranks_ % 2 ? ranks_ : ranks_ - 1;  // odd
    const int last = turning;                              // a rank only when their number is even
    int partner =
        rank == last ? (index * ((turning + 1) / 2)) % turning : (index - rank + turning) % turning;
    if (partner == rank) partner = last;
    return partner < ranks_ ? partner : -1;
}

Round Schedule::bipartite(int rank) const {
    std::vector<Lane> lanes;
    if (rank < servers_)
        for (int client = servers_; client < ranks_; ++client)
            lanes.push_back({client, client - servers_, rank});
    else
        for (int server = 0; server < servers_; ++server)
            lanes.push_back({server, server, rank - servers_});
    const bool out = (rank < servers_) != to_servers_;
    return out ? Round{std::move(lanes), {}} : Round{{}, std::move(lanes)};
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
