#include "events/manager.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace assay::events {
namespace {

// With fewer free slots than wanted, a batch is given out after this time.
constexpr Nanoseconds grace = 1'000'000;
// A builder unit is late, and no longer waited for, after this many usual times for one event.
constexpr double late_factor = 8;
constexpr Nanoseconds min_late = 20'000'000;
// Weight of the newest turnaround in the smoothed one.
constexpr double newest = 0.05;
constexpr std::size_t max_moved = 64;  // in one batch, so that its message has a bounded size

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
            ++members_building_;
        }
    }
    sources_ = static_cast<std::uint32_t>(members_.of(units_.readouts).size());
}

bool EventManager::lose(int rank) {
    if (!members_.has(rank)) return false;
    ++members_.epoch;
    members_.since[static_cast<std::size_t>(rank)] = 0;
    sources_ = static_cast<std::uint32_t>(members_.of(units_.readouts).size());
    if (Builder* b = builder(rank)) {
        b->member = false;
        --members_building_;
        release_all(*b);
    }
    if (options_.drop) drop_incomplete();
    return true;
}

// The bulks of a lost builder unit wait to be given out again.
void EventManager::release_all(Builder& b) {
    for (std::size_t i = 0; i < b.slots.size(); ++i) {
        Slot& slot = b.slots[i];
        if (!slot.held) continue;
        slot.held = slot.parked = false;
        again_.push_back({slot.bulk, {b.rank, static_cast<std::uint16_t>(i)}});
    }
    b.held = b.parked = 0;
    std::ranges::sort(again_, {}, &Again::bulk);
}

// Of the bulks that wait, those that have lost a source are not given out again.
void EventManager::drop_incomplete() {
    std::erase_if(again_, [this](const Again& again) {
        const Entry& entry = ledger_.entry(again.bulk);
        const auto live_sources = static_cast<std::uint64_t>(std::ranges::count_if(
            units_.readouts, [&](int rank) { return members_.had(rank, entry.epoch); }));
        if (live_sources == entry.sources) return false;
        const std::uint64_t events = entry.events;
        ledger_.settle(again.bulk, {.events_incomplete = events,
                                    .partial = events * live_sources,
                                    .lost = events * (entry.sources - live_sources)});
        return true;
    });
}

std::uint32_t EventManager::events_of(std::uint64_t bulk) const {
    const std::uint64_t n = options_.events_per_bulk;
    return static_cast<std::uint32_t>(
        options_.events == 0 ? n : std::min(n, options_.events - bulk * n));
}

bool EventManager::ended() const {
    if (!again_.empty()) return false;
    return stopped_ ||
           (options_.events != 0 && next_ * options_.events_per_bulk >= options_.events);
}

bool EventManager::late(const Builder& b, Nanoseconds time) const {
    if (turnaround_ < 0) return false;  // not known yet
    const auto limit = std::max(min_late, static_cast<Nanoseconds>(late_factor * turnaround_));
    return std::ranges::all_of(
        b.slots, [&](const Slot& s) { return !s.held || s.parked || time - s.since > limit; });
}

bool EventManager::ready(Nanoseconds time) const {
    if (options_.in_rounds) {
        bool any = false;
        for (const Builder& b : builders_) {
            if (!b.member) continue;
            if (has_credit(b)) any = true;
            else if (!late(b, time)) return false;
        }
        return any;
    }
    int free = 0;
    for (const Builder& b : builders_) free += b.member && has_credit(b);
    return free > 0 && (2 * free >= members_building_ || time - last_ >= grace);
}

Place EventManager::occupy(Builder& b, std::uint64_t bulk, Nanoseconds time) {
    const auto free = std::ranges::find(b.slots, false, &Slot::held);
    *free = {.held = true, .bulk = bulk, .since = time};
    ++b.held;
    return {b.rank, static_cast<std::uint16_t>(free - b.slots.begin())};
}

std::optional<Batch> EventManager::plan(Nanoseconds time) {
    if (ended() || sources_ == 0 || !ready(time)) return std::nullopt;
    Batch batch{.epoch = members_.epoch, .number = batches_, .first = next_};
    const std::size_t n = builders_.size();
    for (std::size_t i = 0; i < n; ++i) {
        Builder& b = builders_[(rotation_ + i) % n];
        if (!b.member || !has_credit(b)) continue;
        if (!again_.empty() && batch.moved.size() < max_moved) {
            const Again again = again_.front();
            again_.pop_front();
            const Entry& entry = ledger_.entry(again.bulk);
            batch.moved.push_back({.to = {again.bulk, occupy(b, again.bulk, time)},
                                   .from = again.from,
                                   .epoch = entry.epoch,
                                   .sources = entry.sources});
            ++reassigned_;
        } else if (!ended() && !stopped_ && again_.empty()) {
            ledger_.enter(next_, {events_of(next_), sources_, members_.epoch});
            batch.fresh.push_back(occupy(b, next_, time));
            ++next_;
        }
    }
    if (batch.size() == 0) return std::nullopt;
    if (!options_.in_rounds) rotation_ = (rotation_ + 1) % n;
    ++batches_;
    last_ = time;
    return batch;
}

std::optional<Nanoseconds> EventManager::next_plan() const {
    if (ended() || sources_ == 0) return std::nullopt;
    const bool any =
        std::ranges::any_of(builders_, [&](const Builder& b) { return b.member && has_credit(b); });
    if (!any) return std::nullopt;
    if (!options_.in_rounds) return last_ + grace;
    if (turnaround_ < 0) return std::nullopt;
    const auto limit = std::max(min_late, static_cast<Nanoseconds>(late_factor * turnaround_));
    return last_ + limit + 1;
}

std::string EventManager::settle(const Assignment& done, const Outcome& outcome, Nanoseconds time) {
    Builder* b = builder(done.place.builder);
    if (!b || !b->member) return {};  // of a rank that is lost: its bulks were given out again
    if (done.place.slot >= b->slots.size())
        return fmt::format("rank {} reports slot {} of {}", b->rank, done.place.slot,
                           b->slots.size());
    Slot& slot = b->slots[done.place.slot];
    if (!slot.held || slot.bulk != done.bulk)
        return fmt::format("rank {} reports bulk {}, which it does not have", b->rank, done.bulk);
    std::string problem = ledger_.settle(done.bulk, outcome);
    if (!problem.empty()) return problem;
    if (slot.parked) {
        --b->parked;
    } else {
        const auto took = static_cast<double>(time - slot.since);
        turnaround_ = turnaround_ < 0 ? took : turnaround_ + newest * (took - turnaround_);
    }
    slot.held = slot.parked = false;
    --b->held;
    return {};
}

bool EventManager::park(const Assignment& parked) {
    Builder* b = builder(parked.place.builder);
    if (!b || !b->member || parked.place.slot >= b->slots.size()) return false;
    Slot& slot = b->slots[parked.place.slot];
    if (!slot.held || slot.parked || slot.bulk != parked.bulk) return false;
    slot.parked = true;
    ++b->parked;
    return true;
}

Nanoseconds EventManager::given_at(const Assignment& assignment) const {
    for (const Builder& b : builders_)
        if (b.rank == assignment.place.builder && assignment.place.slot < b.slots.size())
            return b.slots[assignment.place.slot].since;
    return 0;
}

std::vector<int> EventManager::waiting_for() const {
    std::vector<int> ranks;
    for (const Builder& b : builders_)
        if (b.member && b.held > 0) ranks.push_back(b.rank);
    return ranks;
}

}  // namespace assay::events
