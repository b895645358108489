// The rates of the flows on their way (see shares.hpp).
#include "transport/flows/shares.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace assay::flows {
namespace {

constexpr std::size_t resolution = 256;  // of the flows, and of a message's time alone

}  // namespace

Shares::Shares(const Network& network)
    : network_(network), links_(network.links.size()), parts_(network.links.size()) {}

void Shares::start(std::uint32_t message, int from, int to, double bytes, Nanoseconds time) {
    if (free_.empty()) {
        free_.push_back(static_cast<std::uint32_t>(flows_.size()));
        flows_.emplace_back();
    }
    const std::uint32_t flow = free_.back();
    free_.pop_back();
    flows_[flow] = {
        network_.route(from, to), network_.weight(from, to), bytes, 0, time, message, false};
    for (const std::int32_t number : flows_[flow].route) {
        const auto link = static_cast<std::uint32_t>(number);
        links_[link].flows.push_back(flow);
        change(link);
    }
    order_.push_back(flow);
    ends_.push_back(never);
    ++changes_;
    const double alone = bytes / network_.rate(from, to) * 1e9;
    longest_delay_ = static_cast<Nanoseconds>(alone / static_cast<double>(resolution)) + 1;
    if (solve_by_ == never) solve_by_ = time + longest_delay_;
}

void Shares::remove(std::uint32_t flow) {
    for (const std::int32_t number : flows_[flow].route) {
        const auto link = static_cast<std::uint32_t>(number);
        std::vector<std::uint32_t>& flows = links_[link].flows;
        *std::ranges::find(flows, flow) = flows.back();
        flows.pop_back();
        change(link);
    }
    free_.push_back(flow);
    ++changes_;
}

void Shares::change(std::uint32_t link) {
    if (!std::exchange(links_[link].changed, true)) changed_.push_back(link);
}

bool Shares::solution_is_due(Nanoseconds time) const {
    return changes_ > 0 && (changes_ * resolution >= order_.size() || time >= solve_by_);
}

Nanoseconds Shares::next() const {
    const Nanoseconds end = ends_.empty() ? never : *std::ranges::min_element(ends_);
    return std::min(end, solve_by_);
}

void Shares::advance(Nanoseconds time, std::vector<std::uint32_t>& ended) {
    const auto first = static_cast<std::ptrdiff_t>(ended.size());
    std::size_t kept = 0;
    for (std::size_t i = 0; i < order_.size(); ++i) {
        if (ends_[i] <= time) {
            ended.push_back(flows_[order_[i]].message);
            remove(order_[i]);
            continue;
        }
        order_[kept] = order_[i];
        ends_[kept++] = ends_[i];
    }
    if (kept < order_.size()) {
        order_.resize(kept);
        ends_.resize(kept);
        if (solve_by_ == never) solve_by_ = time + longest_delay_;
    }
    std::reverse(ended.begin() + first, ended.end());
    if (solution_is_due(time)) solve(time);
}

double Shares::rate_of(std::uint32_t message) const {
    for (const std::uint32_t flow : order_)
        if (flows_[flow].message == message) return flows_[flow].rate;
    return 0;
}

// A weight is the sum over the link's flows and no running one: that would drift.
void Shares::list_candidates() {
    for (const std::uint32_t number : changed_) {
        Link& link = links_[number];
        link.changed = false;
        link.weight = 0;
        for (const std::uint32_t flow : link.flows) link.weight += flows_[flow].weight;
    }
    changed_.clear();
    candidates_.clear();
    for (std::uint32_t number = 0; number < links_.size(); ++number) {
        const Link& link = links_[number];
        if (link.flows.empty()) continue;
        const double rate = network_.links[number].rate;
        parts_[number] = {rate, link.weight, static_cast<std::uint32_t>(link.flows.size())};
        candidates_.push_back({rate / link.weight, number});
    }
    std::ranges::make_heap(candidates_, std::greater{}, &Candidate::level);
}

// Puts the first candidate into its place in the heap.
void Shares::sink_first() {
    if (candidates_.empty()) return;
    const Candidate sinking = candidates_.front();
    std::size_t place = 0;
    for (std::size_t child = 1; child < candidates_.size(); child = 2 * place + 1) {
        if (child + 1 < candidates_.size() &&
            candidates_[child + 1].level < candidates_[child].level)
            ++child;
        if (sinking.level <= candidates_[child].level) break;
        candidates_[place] = candidates_[child];
        place = child;
    }
    candidates_[place] = sinking;
}

// Fills the links, the one with the lowest level first. The level of a link only grows when flows
// of others are solved, so a candidate whose level has grown sinks in the heap.
void Shares::fill() {
    while (!candidates_.empty()) {
        Candidate& candidate = candidates_.front();
        const Part& full = parts_[candidate.link];
        const double level = full.count ? std::max(full.left, 0.0) / full.weight : 0;
        if (level > candidate.level * (1 + 1e-12)) {
            candidate.level = level;
            sink_first();
            continue;
        }
        const std::vector<std::uint32_t>& flows = links_[candidate.link].flows;
        const bool is_open = full.count > 0;
        candidate = candidates_.back();
        candidates_.pop_back();
        sink_first();
        if (!is_open) continue;
        for (const std::uint32_t number : flows) {
            if (rates_[number] >= 0) continue;
            const Flow& flow = flows_[number];
            const double rate = rates_[number] = level * flow.weight;
            for (const std::int32_t link : flow.route) {
                Part& part = parts_[static_cast<std::uint32_t>(link)];
                part.left -= rate;
                part.weight -= flow.weight;
                --part.count;
            }
        }
    }
}

void Shares::set_rate(Flow& flow, double rate, Nanoseconds time, Nanoseconds& end) const {
    if (flow.solved && rate == flow.rate) return;
    flow.remaining -= flow.rate * static_cast<double>(time - flow.since) * 1e-9;
    flow.remaining = std::max(flow.remaining, 0.0);
    flow.since = time;
    flow.rate = rate;
    flow.solved = true;
    end = time + static_cast<Nanoseconds>(std::ceil(flow.remaining / rate * 1e9));
}

void Shares::solve(Nanoseconds time) {
    changes_ = 0;
    solve_by_ = never;
    list_candidates();
    rates_.assign(flows_.size(), -1);
    fill();
    for (std::size_t i = 0; i < order_.size(); ++i)
        set_rate(flows_[order_[i]], rates_[order_[i]], time, ends_[i]);
}

}  // namespace assay::flows
