#include "events/builder.hpp"

#include <algorithm>
#include <cstring>

#include "events/readout.hpp"

namespace assay::events {
namespace {

std::vector<std::size_t> part_offsets(const Settings& settings) {
    std::vector<std::size_t> offsets{0};
    for (std::size_t i = 0; i < settings.units.readouts.size(); ++i)
        offsets.push_back(offsets.back() + aligned_capacity(settings, static_cast<int>(i)));
    return offsets;
}

// Of all slots; where messages keep no contents, of the largest message alone.
std::size_t memory_bytes(const Member& member, const std::vector<std::size_t>& offsets) {
    const Settings& settings = member.settings;
    if (member.verify) return offsets.back() * static_cast<std::size_t>(settings.slots());
    if (!settings.units.filters.empty()) return offsets.back();  // a whole event is sent on
    std::size_t largest = 0;
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i)
        largest = std::max(largest, offsets[i + 1] - offsets[i]);
    return largest;
}

}  // namespace

std::size_t Builder::memory_needed(const Settings& settings) {
    return part_offsets(settings).back() * static_cast<std::size_t>(settings.slots());
}

Builder::Builder(Member& member)
    : member_(member),
      settings_(member.settings),
      offsets_(part_offsets(settings_)),
      memory_(member.transport, memory_bytes(member, offsets_)),
      slots_(static_cast<std::size_t>(settings_.slots())) {
    for (Slot& slot : slots_) slot.parts.resize(settings_.units.readouts.size());
}

// Where messages keep no contents, all share the memory of one.
std::byte* Builder::part_data(std::uint32_t slot, int source) const {
    if (!member_.verify) return memory_.data();
    return memory_.data() + slot * offsets_.back() + offsets_[static_cast<std::size_t>(source)];
}

void Builder::on_batch(const Batch& batch, Nanoseconds time) {
    const auto sources =
        static_cast<std::uint32_t>(member_.members.of(settings_.units.readouts).size());
    for (std::size_t i = 0; i < batch.fresh.size(); ++i)
        if (batch.fresh[i].builder == member_.rank)
            open({batch.first + i, batch.fresh[i]}, batch.epoch, sources, time);
    for (const Move& move : batch.moved)
        if (move.to.place.builder == member_.rank) open(move.to, move.epoch, move.sources, time);
}

void Builder::open(const Assignment& assignment, Epoch epoch, std::uint32_t expected,
                   Nanoseconds time) {
    const std::uint32_t index = assignment.place.slot;
    Slot& slot = slots_.at(index);
    const Membership& members = member_.members;
    slot.state = State::gathering;
    slot.bulk = settings_.bulk(assignment.bulk);
    slot.begun = time;
    slot.expected = expected;
    slot.open = slot.found = 0;
    slot.verified = slot.damaged = slot.duplicate = 0;
    slot.bad.clear();
    slot.asking.clear();
    slot.asked = 0;
    slot.filter = -1;
    slot.together = 0;
    std::ranges::fill(slot.parts, Part::absent);
    ++held_;
    std::uint32_t others = 0, known = 0;
    for (const int rank : settings_.units.readouts) {
        Part& part = slot.parts[static_cast<std::size_t>(source(rank))];
        if (!members.had(rank, epoch)) {
            ++others;
            continue;
        }
        ++known;
        if (rank != member_.rank && !member_.reaches(rank)) {
            part = Part::lost;
            continue;
        }
        ++slot.open;
        part = settings_.pull ? Part::to_ask : Part::awaited;
        if (!settings_.pull && rank != member_.rank) receive(index, rank);
    }
    // A bulk that is assigned again may have had sources that are lost now. Which sources it had is
    // known if the job has no other ranks than the present ones.
    if (others == expected - known)
        for (const int rank : settings_.units.readouts)
            if (!members.had(rank, epoch))
                slot.parts[static_cast<std::size_t>(source(rank))] = Part::lost;
    if (settings_.pull) {
        slot.asking =
            settings_.schedule.sources(member_.rank, members.of(settings_.units.readouts),
                                       members.of(settings_.units.builders), assignment.bulk);
        std::erase_if(slot.asking, [&](int rank) {
            return slot.parts[static_cast<std::size_t>(source(rank))] != Part::to_ask;
        });
        std::ranges::reverse(slot.asking);
        ask(index);
    }
    if (slot.open == 0) gathered(index, time);
}

void Builder::receive(std::uint32_t slot, int rank) {
    const auto i = static_cast<std::size_t>(source(rank));
    member_.post.receive(part_data(slot, static_cast<int>(i)), offsets_[i + 1] - offsets_[i],
                         tag::fragments + static_cast<int>(slot),
                         {Doing::receive_fragment, rank, slot});
}

void Builder::ask(std::uint32_t index) {
    Slot& slot = slots_[index];
    const bool all = settings_.schedule.order() == Schedule::Order::all;
    while (!slot.asking.empty() && (all || slot.asked < settings_.parallel)) {
        const int rank = slot.asking.back();
        slot.asking.pop_back();
        Part& part = slot.parts[static_cast<std::size_t>(source(rank))];
        if (rank != member_.rank && !member_.reaches(rank)) {
            part = Part::lost;
            --slot.open;
            continue;
        }
        part = Part::awaited;
        ++slot.asked;
        const SlotNote note{slot.bulk.number, 0, index, 0};
        if (rank == member_.rank) {
            readout_->on_request(rank, note);
        } else {
            receive(index, rank);
            member_.to_unit(rank, write_slot(MessageKind::request, note));
        }
    }
}

void Builder::take_own(std::uint32_t index, const std::byte* data, std::size_t bytes) {
    // A filter unit takes the event from one piece of memory.
    const bool copied = member_.verify && !settings_.units.filters.empty();
    if (copied) std::memcpy(part_data(index, source(member_.rank)), data, bytes);
    slots_[index].own = copied ? part_data(index, source(member_.rank)) : data;
    own_.push_back(index);
}

void Builder::on_received(int rank, std::uint32_t index, bool success, Nanoseconds time) {
    if (success) verify(index, rank, time);
    else end_part(index, source(rank), Part::lost, time);
}

void Builder::verify(std::uint32_t index, int rank, Nanoseconds time) {
    Slot& slot = slots_[index];
    const int from = source(rank);
    Verdict verdict;
    if (member_.verify)
        verdict = verify_message(rank == member_.rank ? slot.own : part_data(index, from),
                                 settings_.format, from, slot.bulk);
    else verdict.payload = settings_.format.payload_bytes(from, slot.bulk);
    if (verdict.state == Verdict::State::other) {
        slot.duplicate += slot.bulk.events;
        receive(index, rank);  // the right one is still to come
        return;
    }
    (rank == member_.rank ? member_.meter.now.received_here : member_.meter.now.received) +=
        verdict.payload;
    slot.verified += slot.bulk.events - verdict.damaged.size();
    slot.damaged += verdict.damaged.size();
    if (!verdict.damaged.empty() && slot.bad.empty()) slot.bad.resize(slot.bulk.events);
    for (const std::uint32_t event : verdict.damaged) slot.bad[event] = 1;
    for (const WrongByte& wrong : verdict.located)
        member_.to_manager(
            write_damage({rank, wrong.event, wrong.offset, wrong.expected, wrong.observed}));
    end_part(index, from, verdict.damaged.empty() ? Part::verified : Part::damaged, time);
}

void Builder::end_part(std::uint32_t index, int from, Part part, Nanoseconds time) {
    Slot& slot = slots_[index];
    slot.parts[static_cast<std::size_t>(from)] = part;
    slot.found += part != Part::lost;
    --slot.open;
    if (settings_.pull) {
        --slot.asked;
        ask(index);
    }
    if (slot.open == 0) gathered(index, time);
}

// Every source has delivered or is lost.
void Builder::gathered(std::uint32_t index, Nanoseconds time) {
    Slot& slot = slots_[index];
    const bool may_come = settings_.policy == Policy::wait && slot.state == State::gathering &&
                          slot.found < slot.expected &&
                          std::ranges::find(slot.parts, Part::lost) != slot.parts.end();
    if (may_come) {
        slot.state = State::waiting;
        member_.to_manager(
            write_parked({slot.bulk.number, {member_.rank, static_cast<std::uint16_t>(index)}}));
        ask_lost(index);
        return;
    }
    count(slot);
    const bool complete = slot.outcome.events_incomplete == 0;
    if (complete) member_.meter.latency.record(time - slot.begun);
    if (settings_.units.filters.empty() || (!complete && settings_.policy != Policy::mark)) {
        close(index);
        return;
    }
    slot.state = State::delivering;
    ++delivering_;
    deliver(index);
}

// Policy wait: a lost source has half of the timeout to come back, counted from its loss: an event
// that is given out again does not wait as long once more.
Nanoseconds Builder::wait_limit(const Slot& slot) const {
    Nanoseconds last = 0;
    for (const int rank : settings_.units.readouts)
        if (slot.parts[static_cast<std::size_t>(source(rank))] == Part::lost)
            last = std::max(last, member_.lost_at[static_cast<std::size_t>(rank)]);
    return last + settings_.timeout / 2;
}

void Builder::count(Slot& slot) const {
    const std::uint64_t events = slot.bulk.events;
    Outcome& o = slot.outcome = {};
    o.lost = events * (slot.expected - slot.found);
    o.corrupt = slot.damaged;
    o.duplicate = slot.duplicate;
    const auto bad = static_cast<std::uint64_t>(std::ranges::count(slot.bad, 1));
    o.events_incomplete = o.lost > 0 ? events : bad;
    o.events_built = events - o.events_incomplete;
    o.built = o.events_built * slot.expected;
    o.partial = slot.verified - o.built;
}

void Builder::close(std::uint32_t index) {
    Slot& slot = slots_[index];
    slot.state = State::closed;
    --held_;
    member_.to_manager(write_done(
        {{slot.bulk.number, {member_.rank, static_cast<std::uint16_t>(index)}}, slot.outcome}));
}

// Moves the messages of the slot together, so that they are one message to a filter unit.
void Builder::move_together(std::uint32_t index) {
    Slot& slot = slots_[index];
    if (slot.together > 0) return;
    std::byte* const begin = part_data(index, 0);
    for (std::size_t i = 0; i < slot.parts.size(); ++i) {
        if (slot.parts[i] != Part::verified) continue;
        const int from = static_cast<int>(i);
        const std::size_t bytes = settings_.format.message_bytes(from, slot.bulk);
        std::byte* const data = part_data(index, from);
        if (member_.verify && data != begin + slot.together)
            std::memmove(begin + slot.together, data, bytes);
        slot.together += bytes;
    }
}

// Offers the event to the filter unit that its number chooses among those that are there, so that
// an event that is built again comes to the unit that may know it.
void Builder::deliver(std::uint32_t index) {
    Slot& slot = slots_[index];
    std::vector<int> filters = member_.members.of(settings_.units.filters);
    std::erase_if(filters, [this](int rank) { return !member_.reaches(rank); });
    if (filters.empty()) return;  // waits for one
    slot.filter = filters[slot.bulk.number % filters.size()];
    const auto intact = static_cast<std::uint32_t>(std::ranges::count(slot.parts, Part::verified));
    move_together(index);
    member_.to_unit(slot.filter, write_slot(MessageKind::offer,
                                            {slot.bulk.number, slot.together, index, intact}));
}

void Builder::on_take(int filter, const SlotNote& note) {
    if (note.slot >= slots_.size()) return;
    Slot& slot = slots_[note.slot];
    if (slot.state != State::delivering || slot.filter != filter || slot.bulk.number != note.bulk)
        return;
    slot.sending = true;
    member_.post.send(part_data(note.slot, 0), slot.together, tag::event,
                      {Doing::send_event, filter, note.slot});
}

void Builder::on_taken(int filter, const SlotNote& note) {
    if (note.slot >= slots_.size()) return;
    Slot& slot = slots_[note.slot];
    if (slot.state != State::delivering || slot.filter != filter || slot.bulk.number != note.bulk)
        return;
    if (note.messages > 0) {  // damaged on the way to the filter unit
        Outcome& o = slot.outcome;
        const std::uint64_t fragments = o.built + o.partial;
        const std::uint64_t damaged = std::min<std::uint64_t>(note.messages, fragments);
        o.events_incomplete += std::exchange(o.events_built, 0);
        o.built = 0;
        o.corrupt += damaged;
        o.partial = fragments - damaged;
    }
    --delivering_;
    close(note.slot);
}

void Builder::on_lost(int rank) {
    for (Slot& slot : slots_)
        if (slot.state == State::delivering && slot.filter == rank) slot.filter = -1;
}

// Asks sources that are lost, and have come back, for the bulk that waits for them.
void Builder::ask_lost(std::uint32_t index) {
    Slot& slot = slots_[index];
    for (const int rank : settings_.units.readouts) {
        Part& part = slot.parts[static_cast<std::size_t>(source(rank))];
        const bool is_own = rank == member_.rank;
        if (part != Part::lost || !member_.members.has(rank) || !(is_own || member_.reaches(rank)))
            continue;
        part = Part::awaited;
        ++slot.open;
        ++slot.asked;
        const SlotNote note{slot.bulk.number, 0, index, 0};
        if (is_own) {
            readout_->on_request(rank, note);
        } else {
            receive(index, rank);
            member_.to_unit(rank, write_slot(MessageKind::request, note));
        }
    }
}

void Builder::on_members() {
    for (std::uint32_t index = 0; index < slots_.size(); ++index)
        if (slots_[index].state == State::waiting) ask_lost(index);
}

void Builder::advance(Nanoseconds time) {
    for (std::size_t i = 0; i < own_.size(); ++i) verify(own_[i], member_.rank, time);
    own_.clear();
    if (settings_.policy == Policy::wait && settings_.timeout > 0) {
        for (std::uint32_t index = 0; index < slots_.size(); ++index) {
            Slot& slot = slots_[index];
            if (slot.state != State::waiting || slot.open > 0) continue;
            const bool is_complete = slot.found == slot.expected;
            const Nanoseconds limit = wait_limit(slot);
            if (!is_complete && time < limit) {
                member_.want(limit);
                continue;
            }
            gathered(index, time);
        }
    }
    if (settings_.units.filters.empty()) return;
    for (std::uint32_t index = 0; index < slots_.size(); ++index)
        if (slots_[index].state == State::delivering && slots_[index].filter < 0 &&
            !slots_[index].sending)
            deliver(index);
    const bool blocked = delivering_ == static_cast<int>(slots_.size());
    if (blocked && blocked_ == 0) blocked_ = time;
    if (!blocked && blocked_ != 0) {
        member_.meter.now.waited_filter += time - blocked_;
        blocked_ = 0;
    }
}

}  // namespace assay::events
