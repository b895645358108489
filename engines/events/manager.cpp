// The event manager's decisions (see manager.hpp).
#include "events/manager.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace assay::events {
namespace {

// Longest time that a batch waits for half of the builder units to have a free slot.
constexpr Nanoseconds max_batch_delay = 1'000'000;
// A builder unit is late, and no longer waited for, after this many mean turnarounds.
constexpr double late_turnarounds = 8;
constexpr Nanoseconds min_late = 20'000'000;
// Weight of the newest turnaround in the smoothed one.
constexpr double newest_weight = 0.05;
constexpr std::size_t max_reassigned = 64;  // in a batch, so that its message has a bounded size

}  // namespace

EventManager::EventManager(const Units& units, const Options& options)
    : units_(units), options_(options) {
    members_.since.resize(static_cast<std::size_t>(options.ranks));
    for (const int rank : units.builders)
        builders_.push_back(
            {.rank = rank, .slots = std::vector<Slot>(static_cast<std::size_t>(options.slots))});
}

EventManager::Builder* EventManager::builder(int rank) {
    const auto position = std::ranges::lower_bound(builders_, rank, {}, &Builder::rank);
    return position == builders_.end() || position->rank != rank ? nullptr : &*position;
}

void EventManager::admit(const std::vector<int>& ranks) {
    ++members_.epoch;
    for (const int rank : ranks) {
        members_.since[static_cast<std::size_t>(rank)] = members_.epoch;
        if (Builder* b = builder(rank); b && !b->member) {
            b->member = true;
            ++live_builders_;
        }
    }
    sources_ = static_cast<std::uint32_t>(members_.intersect(units_.readouts).size());
}

bool EventManager::remove(int rank) {
    if (!members_.has(rank)) return false;
    ++members_.epoch;
    members_.since[static_cast<std::size_t>(rank)] = 0;
    sources_ = static_cast<std::uint32_t>(members_.intersect(units_.readouts).size());
    if (Builder* b = builder(rank)) {
        b->member = false;
        --live_builders_;
        orphan_groups(*b);
    }
    if (options_.drop) drop_incomplete();
    return true;
}

// Makes the groups of a lost builder unit wait to be reassigned.
void EventManager::orphan_groups(Builder& b) {
    for (std::size_t i = 0; i < b.slots.size(); ++i) {
        Slot& slot = b.slots[i];
        if (!slot.occupied) continue;
        slot.occupied = slot.parked = false;
        orphans_.push_back({slot.group, {b.rank, static_cast<std::uint16_t>(i)}});
    }
    b.occupied = b.parked = 0;
    std::ranges::sort(orphans_, {}, &Orphan::group);
}

// Closes the waiting groups that have lost a source: they are not reassigned.
void EventManager::drop_incomplete() {
    std::erase_if(orphans_, [this](const Orphan& orphan) {
        const Entry& entry = ledger_.entry(orphan.group);
        const auto live_sources = static_cast<std::uint64_t>(std::ranges::count_if(
            units_.readouts, [&](int rank) { return members_.has_since(rank, entry.epoch); }));
        if (live_sources == entry.sources) return false;
        const std::uint64_t events = entry.events;
        ledger_.close(orphan.group, {.events_incomplete = events,
                                     .partial = events * live_sources,
                                     .lost = events * (entry.sources - live_sources)});
        return true;
    });
}

std::uint32_t EventManager::event_count(std::uint64_t group) const {
    const std::uint64_t n = options_.events_per_group;
    return static_cast<std::uint32_t>(
        options_.events == 0 ? n : std::min(n, options_.events - group * n));
}

bool EventManager::all_assigned() const {
    if (!orphans_.empty()) return false;
    return stopped_ ||
           (options_.events != 0 && next_group_ * options_.events_per_group >= options_.events);
}

bool EventManager::is_late(const Builder& b, Nanoseconds time) const {
    if (turnaround_ < 0) return false;  // not known yet
    const auto limit = std::max(min_late, static_cast<Nanoseconds>(late_turnarounds * turnaround_));
    return std::ranges::all_of(b.slots, [&](const Slot& s) {
        return !s.occupied || s.parked || time - s.assigned_at > limit;
    });
}

bool EventManager::batch_is_due(Nanoseconds time) const {
    if (options_.in_rounds) {
        bool credit_available = false;
        for (const Builder& b : builders_) {
            if (!b.member) continue;
            if (has_credit(b)) credit_available = true;
            else if (!is_late(b, time)) return false;
        }
        return credit_available;
    }
    int free = 0;
    for (const Builder& b : builders_) free += b.member && has_credit(b);
    return free > 0 && (2 * free >= live_builders_ || time - last_batch_ >= max_batch_delay);
}

BuilderSlot EventManager::occupy(Builder& b, std::uint64_t group, Nanoseconds time) {
    const auto free = std::ranges::find(b.slots, false, &Slot::occupied);
    *free = {.occupied = true, .group = group, .assigned_at = time};
    ++b.occupied;
    return {b.rank, static_cast<std::uint16_t>(free - b.slots.begin())};
}

std::optional<Batch> EventManager::plan(Nanoseconds time) {
    if (all_assigned() || sources_ == 0 || !batch_is_due(time)) return std::nullopt;
    Batch batch{.epoch = members_.epoch, .number = batches_, .first = next_group_};
    const std::size_t n = builders_.size();
    for (std::size_t i = 0; i < n; ++i) {
        Builder& b = builders_[(rotation_ + i) % n];
        if (!b.member || !has_credit(b)) continue;
        if (!orphans_.empty() && batch.reassigned.size() < max_reassigned) {
            const Orphan orphan = orphans_.front();
            orphans_.pop_front();
            const Entry& entry = ledger_.entry(orphan.group);
            batch.reassigned.push_back({.to = {orphan.group, occupy(b, orphan.group, time)},
                                        .from = orphan.from,
                                        .epoch = entry.epoch,
                                        .sources = entry.sources});
            ++reassigned_;
        } else if (!all_assigned() && !stopped_ && orphans_.empty()) {
            ledger_.open(next_group_, {event_count(next_group_), sources_, members_.epoch});
            batch.new_slots.push_back(occupy(b, next_group_, time));
            ++next_group_;
        }
    }
    if (batch.size() == 0) return std::nullopt;
    if (!options_.in_rounds) rotation_ = (rotation_ + 1) % n;
    ++batches_;
    last_batch_ = time;
    return batch;
}

std::optional<Nanoseconds> EventManager::next_plan() const {
    if (all_assigned() || sources_ == 0) return std::nullopt;
    const bool credit_available =
        std::ranges::any_of(builders_, [&](const Builder& b) { return b.member && has_credit(b); });
    if (!credit_available) return std::nullopt;
    if (!options_.in_rounds) return last_batch_ + max_batch_delay;
    if (turnaround_ < 0) return std::nullopt;
    const auto limit = std::max(min_late, static_cast<Nanoseconds>(late_turnarounds * turnaround_));
    return last_batch_ + limit + 1;
}

std::string EventManager::close(const Assignment& done, const Outcome& outcome, Nanoseconds time) {
    Builder* b = builder(done.target.builder);
    if (!b || !b->member) return {};  // of a rank that is lost: its groups were reassigned
    if (done.target.slot >= b->slots.size())
        return fmt::format("rank {} reports slot {} of {}", b->rank, done.target.slot,
                           b->slots.size());
    Slot& slot = b->slots[done.target.slot];
    if (!slot.occupied || slot.group != done.group)
        return fmt::format("rank {} reports event group {}, which it does not have", b->rank,
                           done.group);
    std::string problem = ledger_.close(done.group, outcome);
    if (!problem.empty()) return problem;
    if (slot.parked) {
        --b->parked;
    } else {
        const auto turnaround = static_cast<double>(time - slot.assigned_at);
        turnaround_ =
            turnaround_ < 0 ? turnaround : turnaround_ + newest_weight * (turnaround - turnaround_);
    }
    slot.occupied = slot.parked = false;
    --b->occupied;
    return {};
}

bool EventManager::park(const Assignment& parked) {
    Builder* b = builder(parked.target.builder);
    if (!b || !b->member || parked.target.slot >= b->slots.size()) return false;
    Slot& slot = b->slots[parked.target.slot];
    if (!slot.occupied || slot.parked || slot.group != parked.group) return false;
    slot.parked = true;
    ++b->parked;
    return true;
}

Nanoseconds EventManager::assigned_at(const Assignment& assignment) const {
    for (const Builder& b : builders_)
        if (b.rank == assignment.target.builder && assignment.target.slot < b.slots.size())
            return b.slots[assignment.target.slot].assigned_at;
    return 0;
}

std::vector<int> EventManager::busy_builders() const {
    std::vector<int> ranks;
    for (const Builder& b : builders_)
        if (b.member && b.occupied > 0) ranks.push_back(b.rank);
    return ranks;
}

}  // namespace assay::events
