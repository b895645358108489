// The orders of transfers, and the reader of schedule files.
#include "events/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <random>

#include "core/error.hpp"
#include "core/identity.hpp"

namespace assay::events {
namespace {

constexpr const char* order_names[] = {"shift", "random", "all", "file"};

std::size_t position(const std::vector<int>& ranks, int rank) {
    return static_cast<std::size_t>(std::ranges::find(ranks, rank) - ranks.begin());
}

std::vector<int> read_step(std::string_view line, const std::string& location, int ranks) {
    std::vector<int> step;
    std::vector<bool> used(static_cast<std::size_t>(ranks));
    for (std::size_t i = 0; i < line.size();) {
        if (line[i] == ' ' || line[i] == '\t' || line[i] == '\r' || line[i] == ',') {
            ++i;
            continue;
        }
        const std::size_t end = std::min(line.find_first_of(" \t\r,", i), line.size());
        int destination = 0;
        const auto [rest, error] = std::from_chars(line.data() + i, line.data() + end, destination);
        if (error != std::errc() || rest != line.data() + end || destination < no_rank ||
            destination >= ranks)
            throw Error(
                fmt::format(
                    "{}: \"{}\" is not a rank", location,
                    printable(std::string(line.substr(i, std::min<std::size_t>(end - i, 20))))),
                fmt::format("give 0 to {}, or -1 for none", ranks - 1));
        if (destination != no_rank) {
            if (used[static_cast<std::size_t>(destination)])
                throw Error(fmt::format("{}: two ranks send to rank {}", location, destination),
                            "give each rank at most one source in a step");
            used[static_cast<std::size_t>(destination)] = true;
        }
        step.push_back(destination);
        i = end;
    }
    if (step.size() != static_cast<std::size_t>(ranks))
        throw Error(fmt::format("{}: {} destinations for {} ranks", location, step.size(), ranks),
                    "plan the schedule for as many hosts as ranks are started");
    return step;
}

}  // namespace

Schedule::Order Schedule::parse_order(std::string_view name) {
    for (std::size_t i = 0; i < std::size(order_names); ++i)
        if (name == order_names[i]) return static_cast<Order>(i);
    throw Error(fmt::format("--schedule {}: unknown", name), "give shift, random, all or file");
}

Schedule Schedule::from_text(std::string_view text, const std::string& file, int ranks) {
    Schedule schedule(Order::file, 0);
    const auto n = static_cast<std::size_t>(ranks);
    std::vector<bool> sent(n * n);
    int number = 0;
    for (std::size_t begin = 0; begin < text.size(); ++number) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        const std::string_view line = text.substr(begin, end - begin);
        begin = end + 1;
        const std::size_t content = line.find_first_not_of(" \t\r");
        if (content == std::string_view::npos || line[content] == '#') continue;
        const std::string location = fmt::format("{}, line {}", file, number + 1);
        std::vector<int> step = read_step(line, location, ranks);
        for (std::size_t source = 0; source < n; ++source) {
            if (step[source] == no_rank) continue;
            if (step[source] == static_cast<int>(source)) {
                step[source] = no_rank;  // a rank serves itself without the network
                continue;
            }
            const std::size_t pair = source * n + static_cast<std::size_t>(step[source]);
            if (sent[pair])
                throw Error(fmt::format("{}: rank {} sends to rank {} a second time", location,
                                        source, step[source]),
                            "list each pair of ranks once");
            sent[pair] = true;
        }
        schedule.steps_.push_back(std::move(step));
    }
    for (std::size_t pair = 0; pair < n * n; ++pair)
        if (!sent[pair] && pair / n != pair % n)
            throw Error(fmt::format("{}: rank {} never sends to rank {}", file, pair / n, pair % n),
                        "list each pair of ranks once");
    return schedule;
}

std::vector<int> Schedule::destinations(int readout, const std::vector<int>& readouts,
                                        const std::vector<int>& builders,
                                        std::uint64_t round) const {
    const std::size_t n = builders.size(), i = position(readouts, readout);
    std::vector<int> steps;
    if (order_ == Order::file) {
        steps.reserve(steps_.size() + 1);
        const bool folded = std::ranges::binary_search(builders, readout);
        steps.push_back(folded ? readout : no_rank);
        for (const std::vector<int>& step : steps_) {
            const int to = step[static_cast<std::size_t>(readout)];
            steps.push_back(to != no_rank && std::ranges::binary_search(builders, to) ? to
                                                                                      : no_rank);
        }
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
        for (const std::vector<int>& step : steps_)
            for (const int source : readouts)
                if (step[static_cast<std::size_t>(source)] == builder) order.push_back(source);
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
