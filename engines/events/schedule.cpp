// The orders of transfers, and the reader of plans.
#include "events/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <random>

#include "core/error.hpp"
#include "core/identity.hpp"

namespace assay::events {
namespace {

constexpr const char* order_names[] = {"shift", "random", "all", "file"};

std::size_t position(const std::vector<int>& ranks, int rank) {
    return static_cast<std::size_t>(std::ranges::find(ranks, rank) - ranks.begin());
}

[[noreturn]] void throw_no_rank(const std::string& location, std::string_view text, int ranks) {
    throw Error(fmt::format("{}: \"{}\" is not a rank", location, printable(std::string(text))),
                fmt::format("give 0 to {}, or -1 for none", ranks - 1));
}

std::vector<int> read_step(std::string_view line, const std::string& location, int ranks) {
    std::vector<int> step;
    for (std::size_t i = 0; i < line.size();) {
        if (line[i] == ' ' || line[i] == '\t' || line[i] == '\r' || line[i] == ',') {
            ++i;
            continue;
        }
        const std::size_t end = std::min(line.find_first_of(" \t\r,", i), line.size());
        int destination = 0;
        const auto [rest, error] = std::from_chars(line.data() + i, line.data() + end, destination);
        if (error != std::errc() || rest != line.data() + end)
            throw_no_rank(location, line.substr(i, std::min<std::size_t>(end - i, 20)), ranks);
        step.push_back(destination);
        i = end;
    }
    return step;
}

// Checks a plan step by step.
class Pairs {
public:
    explicit Pairs(int ranks) : n_(static_cast<std::size_t>(ranks)), met_(n_ * n_) {}

    // Makes a rank that sends to itself idle: it serves itself without the network.
    void add(std::vector<int>& step, const std::string& location) {
        if (step.size() != n_)
            throw Error(fmt::format("{}: {} destinations for {} ranks", location, step.size(), n_),
                        "plan the schedule for as many hosts as ranks are started");
        std::vector<bool> used(n_);
        for (std::size_t source = 0; source < n_; ++source) {
            const int to = step[source];
            if (to == no_rank) continue;
            if (to < 0 || static_cast<std::size_t>(to) >= n_)
                throw_no_rank(location, std::to_string(to), static_cast<int>(n_));
            const auto destination = static_cast<std::size_t>(to);
            if (used[destination])
                throw Error(fmt::format("{}: two ranks send to rank {}", location, to),
                            "give each rank at most one source in a step");
            used[destination] = true;
            if (destination == source) {
                step[source] = no_rank;
                continue;
            }
            const std::size_t pair = source * n_ + destination;
            if (met_[pair])
                throw Error(
                    fmt::format("{}: rank {} sends to rank {} a second time", location, source, to),
                    "list each pair of ranks once");
            met_[pair] = true;
        }
    }

    void require_all(const std::string& source) const {
        for (std::size_t pair = 0; pair < met_.size(); ++pair)
            if (!met_[pair] && pair / n_ != pair % n_)
                throw Error(
                    fmt::format("{}: rank {} never sends to rank {}", source, pair / n_, pair % n_),
                    "list each pair of ranks once");
    }

private:
    std::size_t n_;
    std::vector<bool> met_;  // [source * ranks + destination]
};

}  // namespace

Schedule::Order Schedule::parse_order(std::string_view name) {
    for (std::size_t i = 0; i < std::size(order_names); ++i)
        if (name == order_names[i]) return static_cast<Order>(i);
    throw Error(fmt::format("--schedule {}: unknown", name), "give shift, random, all or file");
}

Plan Plan::from_text(std::string_view text, const std::string& file, int ranks) {
    Plan plan;
    Pairs pairs(ranks);
    int number = 0;
    for (std::size_t begin = 0; begin < text.size(); ++number) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        const std::string_view line = text.substr(begin, end - begin);
        begin = end + 1;
        const std::size_t content = line.find_first_not_of(" \t\r");
        if (content == std::string_view::npos || line[content] == '#') continue;
        const std::string location = fmt::format("{}, line {}", file, number + 1);
        std::vector<int> step = read_step(line, location, ranks);
        pairs.add(step, location);
        plan.add(std::move(step));
    }
    pairs.require_all(file);
    return plan;
}

Plan Plan::from_steps(std::vector<std::vector<int>> steps, const std::string& source, int ranks) {
    Plan plan;
    Pairs pairs(ranks);
    for (std::size_t number = 0; number < steps.size(); ++number) {
        pairs.add(steps[number], fmt::format("{}, step {}", source, number + 1));
        plan.add(std::move(steps[number]));
    }
    pairs.require_all(source);
    return plan;
}

void Plan::add(std::vector<int> to) {
    std::vector<int> from(to.size(), no_rank);
    for (std::size_t rank = 0; rank < to.size(); ++rank)
        if (to[rank] != no_rank) from[static_cast<std::size_t>(to[rank])] = static_cast<int>(rank);
    steps_.push_back({std::move(to), std::move(from)});
}

Steps Plan::of(int rank) const {
    Steps own;
    for (const Steps& step : steps_) {
        own.to.push_back(step.to[static_cast<std::size_t>(rank)]);
        own.from.push_back(step.from[static_cast<std::size_t>(rank)]);
    }
    return own;
}

std::vector<int> Schedule::destinations(int readout, const std::vector<int>& readouts,
                                        const std::vector<int>& builders,
                                        std::uint64_t round) const {
    const std::size_t n = builders.size(), i = position(readouts, readout);
    std::vector<int> steps;
    if (order_ == Order::file) {
        steps.reserve(steps_.to.size() + 1);
        const bool folded = std::ranges::binary_search(builders, readout);
        steps.push_back(folded ? readout : no_rank);
        for (const int to : steps_.to)
            steps.push_back(std::ranges::binary_search(builders, to) ? to : no_rank);
    } else if (order_ == Order::random) {
        steps = builders;
        std::seed_seq seeds{seed_, round, static_cast<std::uint64_t>(readout)};
        std::mt19937 random(seeds);
        std::ranges::shuffle(steps, random);
    } else {
        const std::size_t width = std::max(readouts.size(), n);
        steps.reserve(width);
        for (std::size_t k = 0; k < width; ++k) {
            const std::size_t to = (i + k) % width;
            steps.push_back(to < n ? builders[to] : no_rank);
        }
    }
    return steps;
}

std::vector<int> Schedule::sources(int builder, const std::vector<int>& readouts,
                                   const std::vector<int>& builders, std::uint64_t round) const {
    std::vector<int> order;
    if (order_ == Order::file) {
        if (std::ranges::binary_search(readouts, builder)) order.push_back(builder);
        std::ranges::copy_if(steps_.from, std::back_inserter(order), [&](int source) {
            return std::ranges::binary_search(readouts, source);
        });
    } else if (order_ == Order::random) {
        order = readouts;
        std::seed_seq seeds{seed_, round, static_cast<std::uint64_t>(builder)};
        std::mt19937 random(seeds);
        std::ranges::shuffle(order, random);
    } else {
        // The inverse of the shift: in step k the source is k places before the builder unit.
        const std::size_t width = std::max(readouts.size(), builders.size());
        const std::size_t to = position(builders, builder);
        for (std::size_t k = 0; k < width; ++k) {
            const std::size_t from = (to + width - k) % width;
            if (from < readouts.size()) order.push_back(readouts[from]);
        }
    }
    return order;
}

}  // namespace assay::events
