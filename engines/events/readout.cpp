#include "events/readout.hpp"

#include <algorithm>
#include <limits>

#include "events/builder.hpp"

namespace assay::events {
namespace {

constexpr std::size_t cache_line = 64;

// Bulks that are made before they are given out.
std::size_t depth(const Settings& settings) {
    return std::clamp<std::size_t>(settings.units.builders.size(), 1, 64);
}

int send_limit(const Settings& settings) {
    const bool free = settings.pull || settings.schedule.order() == Schedule::Order::all;
    return free ? std::numeric_limits<int>::max() : settings.in_flight;
}

}  // namespace

std::size_t aligned_capacity(const Settings& settings, int source) {
    const std::size_t bytes = settings.format.capacity(source, settings.events_per_message);
    return (bytes + cache_line - 1) / cache_line * cache_line;
}

std::size_t Readout::buffers(const Settings& settings) {
    return settings.units.builders.size() * static_cast<std::size_t>(settings.slots()) +
           depth(settings) + 2;
}

Readout::Readout(Member& member, Builder* local)
    : member_(member),
      settings_(member.settings),
      local_(local),
      source_(member.settings.source_number(member.rank)),
      memory_(member.transport, aligned_capacity(member.settings, source_) *
                                    (member.verify ? buffers(member.settings) : 1)),
      buffers_(buffers(member.settings)),
      barrier_(member.rank),
      max_in_flight_(send_limit(member.settings)),
      random_(static_cast<std::uint32_t>(settings_.format.run * 1000003 +
                                         static_cast<std::uint64_t>(member.rank))) {
    const std::size_t size = aligned_capacity(settings_, source_);
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
        buffers_[i].data = memory_.data() + (member.verify ? i * size : 0);
        free_.push_back(static_cast<std::uint32_t>(i));
    }
    const std::size_t builders = settings_.units.builders.size();
    held_.assign(builders * static_cast<std::size_t>(settings_.slots()), none);
    wanted_.assign(held_.size(), 0);
    pending_.resize(builders);
}

void Readout::start(std::uint64_t next_bulk, Nanoseconds time) {
    next_bulk_ = first_bulk_ = next_bulk;
    begun_ = time;
}

void Readout::on_members() {
    const Membership& members = member_.members;
    const std::vector<int> readouts = members.of(settings_.units.readouts),
                           builders = members.of(settings_.units.builders);
    order_.clear();
    if (!settings_.in_rounds())
        for (const int to : settings_.schedule.destinations(member_.rank, readouts, builders, 0))
            if (to != nobody) order_.push_back(to);
    cursor_ = 0;
    if (!settings_.synchronised) return;
    step_ = ended_ = 0;
    done_steps_.clear();
    barrier_.begin(members.epoch, readouts);
    tell_barrier();
}

std::size_t Readout::place(const Place& place) const {
    const std::vector<int>& builders = settings_.units.builders;
    const auto i = std::ranges::lower_bound(builders, place.builder) - builders.begin();
    return static_cast<std::size_t>(i) * static_cast<std::size_t>(settings_.slots()) + place.slot;
}

int Readout::builder_of(std::size_t place) const {
    return settings_.units.builders[place / static_cast<std::size_t>(settings_.slots())];
}

void Readout::release(std::uint32_t index) {
    Buffer& buffer = buffers_[index];
    buffer.again = false;
    buffer.released = buffer.sends > 0;
    if (!buffer.released) free_.push_back(index);
}

void Readout::bind(std::size_t place, std::uint32_t buffer) {
    if (held_[place] != none) release(held_[place]);
    held_[place] = buffer;
    buffers_[buffer].place = place;
    buffers_[buffer].epoch = 0;
}

void Readout::queue(std::size_t place) {
    if (settings_.pull && wanted_[place] != buffers_[held_[place]].bulk + 1) return;
    if (!settings_.pull && !settings_.in_rounds() &&
        settings_.schedule.order() == Schedule::Order::shift) {
        pending_[place / static_cast<std::size_t>(settings_.slots())].push_back(
            static_cast<std::uint32_t>(place));
        ++pendings_;
    } else {
        ready_.push_back(static_cast<std::uint32_t>(place));
    }
}

// Puts the next bulk of the first batch into its place. False if there is none that can be.
bool Readout::bind_next() {
    if (batches_.empty()) return false;
    const std::shared_ptr<const Batch> batch = batches_.front();
    if (bound_ < batch->moved.size()) {
        const Move& move = batch->moved[bound_++];
        const std::size_t from = place(move.from), to = place(move.to.place);
        const std::uint32_t buffer = held_[from];
        if (buffer != none && buffers_[buffer].bulk == move.to.bulk) {
            held_[from] = none;
            bind(to, buffer);
            queue(to);
        }
    } else if (bound_ < batch->size()) {
        if (fresh_.empty()) return false;
        const std::size_t to = place(batch->fresh[bound_++ - batch->moved.size()]);
        const std::uint32_t buffer = fresh_.front();
        fresh_.pop_front();
        given_ += settings_.bulk(buffers_[buffer].bulk).events;
        bind(to, buffer);
        if (settings_.pull || !settings_.in_rounds()) queue(to);
    }
    if (bound_ == batch->size()) {
        if (!settings_.pull && settings_.in_rounds()) begin_round(*batch);
        batches_.pop_front();
        bound_ = 0;
    }
    return true;
}

void Readout::begin_round(const Batch& batch) {
    if (batch.fresh.empty()) return;
    const Membership& members = member_.members;
    Round round{.epoch = batch.epoch};
    for (const int to :
         settings_.schedule.destinations(member_.rank, members.of(settings_.units.readouts),
                                         members.of(settings_.units.builders), batch.number)) {
        const auto placed = std::ranges::find(batch.fresh, to, &Place::builder);
        round.steps.push_back(
            placed == batch.fresh.end() ? none : static_cast<std::uint32_t>(place(*placed)));
    }
    rounds_.push_back(std::move(round));
}

void Readout::fill(Buffer& buffer, std::uint64_t number) {
    const Bulk bulk = settings_.bulk(number);
    buffer.bulk = number;
    buffer.again = false;
    buffer.bytes = member_.verify ? write_message(buffer.data, settings_.format, source_, bulk)
                                  : settings_.format.message_bytes(source_, bulk);
    buffer.payload = settings_.format.payload_bytes(source_, bulk);
}

// Makes the next bulk, if it is due and a buffer is free.
bool Readout::make(Nanoseconds time) {
    if (settings_.events != 0 && next_bulk_ * settings_.events_per_message >= settings_.events)
        return false;
    if (settings_.rate > 0) {
        // A stopped input has lost its time: it does not catch up.
        const Nanoseconds stopped = blocked_ == 0 ? 0 : time - blocked_;
        const double due = static_cast<double>(begun_ + stopped) + made_ / settings_.rate * 1e9;
        if (static_cast<double>(time) < due) {
            member_.want(static_cast<Nanoseconds>(due) + 1);
            return false;
        }
    }
    // Some buffers stay free for bulks that are asked for again.
    if (free_.empty() || fresh_.size() >= depth(settings_)) {
        if (blocked_ == 0) blocked_ = time;
        return false;
    }
    if (blocked_ != 0) {
        member_.meter.now.waited_credits += time - blocked_;
        begun_ += time - blocked_;
        blocked_ = 0;
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    fill(buffers_[index], next_bulk_++);
    made_ += static_cast<double>(buffers_[index].payload);
    fresh_.push_back(index);
    return true;
}

void Readout::on_request(int builder, const SlotNote& note) {
    if (note.slot >= static_cast<std::uint32_t>(settings_.slots())) return;
    const std::size_t to = place({builder, static_cast<std::uint16_t>(note.slot)});
    if (note.bulk < first_bulk_) {
        old_requests_.emplace_back(to, note.bulk);
        return;
    }
    wanted_[to] = note.bulk + 1;
    if (held_[to] != none && buffers_[held_[to]].bulk == note.bulk) queue(to);
}

// A builder unit waited for this rank to come back: the board still has the event.
void Readout::make_again() {
    while (!old_requests_.empty() && !free_.empty()) {
        const auto [to, bulk] = old_requests_.back();
        old_requests_.pop_back();
        const std::uint32_t index = free_.back();
        free_.pop_back();
        fill(buffers_[index], bulk);
        bind(to, index);
        ready_.push_back(static_cast<std::uint32_t>(to));
    }
}

std::uint32_t Readout::next_ready() {
    if (pendings_ > 0) {
        const std::vector<int>& builders = settings_.units.builders;
        for (std::size_t i = 0; i < order_.size(); ++i) {
            const int to = order_[cursor_];
            cursor_ = (cursor_ + 1) % order_.size();
            auto& pending = pending_[static_cast<std::size_t>(
                std::ranges::lower_bound(builders, to) - builders.begin())];
            if (pending.empty()) continue;
            const std::uint32_t place = pending.front();
            pending.pop_front();
            --pendings_;
            return place;
        }
        for (auto& pending : pending_) pending.clear();  // of units that are lost
        pendings_ = 0;
    }
    if (ready_.empty()) return none;
    if (settings_.schedule.order() == Schedule::Order::random)
        std::swap(ready_.front(), ready_[random_() % ready_.size()]);
    const std::uint32_t place = ready_.front();
    ready_.pop_front();
    return place;
}

// Sends the bulk in the place. False if nothing is in flight for it now.
bool Readout::send(std::size_t place) {
    const std::uint32_t index = held_[place];
    const int to = builder_of(place);
    if (index == none || !member_.reaches(to)) return false;
    Buffer& buffer = buffers_[index];
    if (buffer.sends > 0) {  // still on its way to a unit that is lost
        buffer.again = true;
        return false;
    }
    const auto slot =
        static_cast<std::uint32_t>(place % static_cast<std::size_t>(settings_.slots()));
    if (to == member_.rank) {
        local_->take_own(slot, buffer.data, buffer.bytes);
        return false;
    }
    ++buffer.sends;
    ++in_flight_;
    member_.post.send(buffer.data, buffer.bytes, tag::fragments + static_cast<int>(slot),
                      {Doing::send_fragment, to, index});
    return true;
}

void Readout::send_ready() {
    while (in_flight_ < max_in_flight_) {
        const std::uint32_t place = next_ready();
        if (place == none) return;
        send(place);
    }
}

// Serves the steps of the rounds in their order. True if any was.
bool Readout::send_rounds() {
    bool any = false;
    while (!rounds_.empty() && in_flight_ < max_in_flight_) {
        Round& round = rounds_.front();
        if (round.next == round.steps.size()) {
            rounds_.pop_front();
            continue;
        }
        // Ranks do not wait for each other in a round of before the last loss.
        const bool together = settings_.synchronised && round.epoch == member_.members.epoch;
        if (together &&
            step_ >= barrier_.passed() + static_cast<std::uint64_t>(settings_.in_flight))
            return any;
        const std::uint32_t place = round.steps[round.next++];
        any = true;
        const bool sent = place != none && send(place);
        if (!together) continue;
        done_steps_.push_back(false);
        if (sent) {
            buffers_[held_[place]].epoch = round.epoch;
            buffers_[held_[place]].step = step_;
        }
        ++step_;
        if (!sent) end_step(step_ - 1);
    }
    return any;
}

void Readout::end_step(std::uint64_t step) {
    if (step < ended_ || step - ended_ >= done_steps_.size()) return;
    done_steps_[step - ended_] = true;
    while (!done_steps_.empty() && done_steps_.front()) {
        done_steps_.pop_front();
        ++ended_;
        barrier_.enter();
    }
    tell_barrier();
}

void Readout::tell_barrier() {
    for (const Barrier::Outgoing& out : barrier_.outgoing())
        member_.to_unit(out.peer, write_barrier(out.note));
}

void Readout::on_sent(std::uint32_t index, bool success) {
    Buffer& buffer = buffers_[index];
    --buffer.sends;
    --in_flight_;
    if (success) member_.meter.now.sent += buffer.payload;
    if (buffer.epoch != 0) {
        if (buffer.epoch == member_.members.epoch) end_step(buffer.step);
        buffer.epoch = 0;
    }
    if (buffer.released) {
        buffer.released = false;
        free_.push_back(index);
    } else if (buffer.again) {
        buffer.again = false;
        queue(buffer.place);
    }
}

void Readout::advance(Nanoseconds time) {
    make_again();
    // One bulk at a time: what has arrived meanwhile is handled between two.
    const bool made = make(time);
    while (bind_next()) {
    }
    send_ready();
    if (send_rounds()) tell_barrier();
    else if (settings_.synchronised) tell_barrier();
    if (made && !free_.empty() && fresh_.size() < depth(settings_)) member_.want(time);
    member_.meter.now.given = given_;
}

}  // namespace assay::events
