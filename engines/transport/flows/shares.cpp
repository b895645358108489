// The rates of the flows on their way (see shares.hpp).
#include "transport/flows/shares.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

namespace assay::flows {
namespace {

constexpr std::size_t resolution = 256;  // of the flows, and of a message's time alone

}  // namespace

Shares::Shares(const Network& network)
    : network_(network),
      left_(network.links.size()),
      weights_(left_.size()),
      counts_(left_.size()),
      first_(left_.size()),
      lengths_(left_.size()) {}

void Shares::start(std::uint32_t message, int from, int to, double bytes, Nanoseconds time) {
    flows_.push_back({message, from, to, network_.weight(from, to), bytes, 0, time, false});
    ends_.push_back(never);
    ++changes_;
    const double alone = bytes / network_.rate(from, to) * 1e9;
    longest_delay_ = static_cast<Nanoseconds>(alone / static_cast<double>(resolution)) + 1;
    if (solve_by_ == never) solve_by_ = time + longest_delay_;
}

bool Shares::solution_is_due(Nanoseconds time) const {
    return changes_ > 0 && (changes_ * resolution >= flows_.size() || time >= solve_by_);
}

Nanoseconds Shares::next() const {
    const Nanoseconds end = ends_.empty() ? never : *std::ranges::min_element(ends_);
    return std::min(end, solve_by_);
}

void Shares::advance(Nanoseconds time, std::vector<std::uint32_t>& ended) {
    const auto first = static_cast<std::ptrdiff_t>(ended.size());
    std::size_t kept = 0;
    for (std::size_t i = 0; i < flows_.size(); ++i) {
        if (ends_[i] <= time) {
            ended.push_back(flows_[i].message);
            continue;
        }
        if (kept < i) {
            flows_[kept] = flows_[i];
            ends_[kept] = ends_[i];
        }
        ++kept;
    }
    if (kept < flows_.size()) {
        changes_ += flows_.size() - kept;
        flows_.resize(kept);
        ends_.resize(kept);
        if (solve_by_ == never) solve_by_ = time + longest_delay_;
    }
    std::reverse(ended.begin() + first, ended.end());
    if (solution_is_due(time)) solve(time);
}

double Shares::rate_of(std::uint32_t message) const {
    const auto flow = std::ranges::find(flows_, message, &Flow::message);
    return flow == flows_.end() ? 0 : flow->rate;
}

void Shares::list_flows_of_links() {
    for (const std::uint32_t link : used_) counts_[link] = 0;
    used_.clear();
    for (const Flow& flow : flows_)
        for (const std::int32_t number : network_.route(flow.from, flow.to)) {
            const auto link = static_cast<std::uint32_t>(number);
            if (counts_[link]++ == 0) {
                used_.push_back(link);
                weights_[link] = 0;
                left_[link] = network_.links[link].rate;
            }
            weights_[link] += flow.weight;
        }
    std::uint32_t end = 0;
    for (const std::uint32_t link : used_) first_[link] = end += lengths_[link] = counts_[link];
    flows_of_links_.resize(end);
    for (std::uint32_t i = 0; i < flows_.size(); ++i)
        for (const std::int32_t link : network_.route(flows_[i].from, flows_[i].to))
            flows_of_links_[--first_[static_cast<std::uint32_t>(link)]] = i;
}

// Fills the links, the one with the lowest level first. The level of a link only grows when flows
// of others are solved, so a candidate whose level has grown goes back into the heap.
void Shares::fill() {
    candidates_.clear();
    for (const std::uint32_t link : used_)
        candidates_.push_back({left_[link] / weights_[link], link});
    std::ranges::make_heap(candidates_, std::greater{}, &Candidate::level);
    while (!candidates_.empty()) {
        std::ranges::pop_heap(candidates_, std::greater{}, &Candidate::level);
        Candidate& candidate = candidates_.back();
        const std::uint32_t full = candidate.link;
        if (counts_[full] == 0) {
            candidates_.pop_back();
            continue;
        }
        const double level = std::max(left_[full], 0.0) / weights_[full];
        if (level > candidate.level * (1 + 1e-12)) {
            candidate.level = level;
            std::ranges::push_heap(candidates_, std::greater{}, &Candidate::level);
            continue;
        }
        candidates_.pop_back();
        for (std::uint32_t k = first_[full]; k < first_[full] + lengths_[full]; ++k) {
            const std::uint32_t i = flows_of_links_[k];
            if (rates_[i] >= 0) continue;
            const Flow& flow = flows_[i];
            rates_[i] = level * flow.weight;
            for (const std::int32_t number : network_.route(flow.from, flow.to)) {
                const auto link = static_cast<std::uint32_t>(number);
                left_[link] -= rates_[i];
                weights_[link] -= flow.weight;
                --counts_[link];
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
    list_flows_of_links();
    rates_.assign(flows_.size(), -1);
    fill();
    for (std::size_t i = 0; i < flows_.size(); ++i) set_rate(flows_[i], rates_[i], time, ends_[i]);
}

}  // namespace assay::flows
