// A builder unit (see builder.hpp). A readout unit sends its fragments of each event; a builder
// unit gathers the fragments of one event from all readout units; a filter unit receives built
// events. A group is a number of successive events whose fragments share a message; a slot is a
// builder unit's memory for one group.
#include "events/builder.hpp"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "events/readout.hpp"

namespace assay::events {
namespace {

std::vector<std::size_t> source_offsets(const Settings& settings) {
    std::vector<std::size_t> offsets{0};
    for (std::size_t i = 0; i < settings.units.readouts.size(); ++i)
        offsets.push_back(offsets.back() + aligned_capacity(settings, static_cast<int>(i)));
    return offsets;
}

// Bytes of the memory of all slots. If messages keep no contents, the largest message suffices.
std::size_t memory_bytes(const RankContext& context, const std::vector<std::size_t>& offsets) {
    const Settings& settings = context.settings;
    if (context.verify) return offsets.back() * static_cast<std::size_t>(settings.slots());
    if (!settings.units.filters.empty()) return offsets.back();  // a whole event is sent on
    std::size_t largest = 0;
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i)
        largest = std::max(largest, offsets[i + 1] - offsets[i]);
    return largest;
}

}  // namespace

std::size_t Builder::memory_needed(const Settings& settings) {
    return source_offsets(settings).back() * static_cast<std::size_t>(settings.slots());
}

Builder::Builder(RankContext& context)
    : context_(context),
      settings_(context.settings),
      offsets_(source_offsets(settings_)),
      memory_(context.transport, memory_bytes(context, offsets_)),
      slots_(static_cast<std::size_t>(settings_.slots())) {
    for (Slot& slot : slots_) slot.source_states.resize(settings_.units.readouts.size());
}

// The memory for a source's message in a slot. If messages keep no contents, all share the same.
std::byte* Builder::source_data(std::uint32_t slot, int source) const {
    if (!context_.verify) return memory_.data();
    return memory_.data() + slot * offsets_.back() + offsets_[static_cast<std::size_t>(source)];
}

void Builder::on_batch(const Batch& batch, Nanoseconds time) {
    const auto sources =
        static_cast<std::uint32_t>(context_.members.intersect(settings_.units.readouts).size());
    for (std::size_t i = 0; i < batch.new_slots.size(); ++i)
        if (batch.new_slots[i].builder == context_.rank)
            open_slot({batch.first + i, batch.new_slots[i]}, batch.epoch, sources, time);
    for (const Reassignment& moved : batch.reassigned)
        if (moved.to.target.builder == context_.rank)
            open_slot(moved.to, moved.epoch, moved.sources, time);
}

void Builder::open_slot(const Assignment& assignment, Epoch epoch, std::uint32_t expected,
                        Nanoseconds time) {
    const std::uint32_t index = assignment.target.slot;
    Slot& slot = slots_.at(index);
    const Membership& members = context_.members;
    slot.state = State::gathering;
    slot.group = settings_.group(assignment.group);
    slot.assigned_at = time;
    slot.expected_sources = expected;
    slot.pending_sources = slot.arrived_sources = 0;
    slot.verified = slot.damaged = slot.duplicate = 0;
    slot.damaged_events.clear();
    slot.sources_to_request.clear();
    slot.requests_in_flight = 0;
    slot.filter = -1;
    slot.event_bytes = 0;
    std::ranges::fill(slot.source_states, SourceState::absent);
    std::uint32_t non_member_count = 0, member_count = 0;
    for (const int rank : settings_.units.readouts) {
        SourceState& state = slot.source_states[static_cast<std::size_t>(source_number(rank))];
        if (!members.has_since(rank, epoch)) {
            ++non_member_count;
            continue;
        }
        ++member_count;
        if (rank != context_.rank && !context_.is_reachable(rank)) {
            state = SourceState::lost;
            continue;
        }
        ++slot.pending_sources;
        state = settings_.pull ? SourceState::to_request : SourceState::awaited;
        if (!settings_.pull && rank != context_.rank) receive(index, rank);
    }
    // A reassigned group may have had sources that are lost now. They can only be identified if all
    // readout units that have not been members since `epoch` were sources.
    if (non_member_count == expected - member_count)
        for (const int rank : settings_.units.readouts)
            if (!members.has_since(rank, epoch))
                slot.source_states[static_cast<std::size_t>(source_number(rank))] =
                    SourceState::lost;
    if (settings_.pull) {
        slot.sources_to_request = context_.schedule.sources(
            context_.rank, members.intersect(settings_.units.readouts),
            members.intersect(settings_.units.builders), assignment.group);
        std::erase_if(slot.sources_to_request, [&](int rank) {
            return slot.source_states[static_cast<std::size_t>(source_number(rank))] !=
                   SourceState::to_request;
        });
        std::ranges::reverse(slot.sources_to_request);
        send_requests(index);
    }
    if (slot.pending_sources == 0) on_gathered(index, time);
}

void Builder::receive(std::uint32_t slot, int rank) {
    const auto i = static_cast<std::size_t>(source_number(rank));
    context_.operations.receive(
        source_data(slot, static_cast<int>(i)), offsets_[i + 1] - offsets_[i],
        tag::fragments + static_cast<int>(slot), {OperationKind::receive_fragment, rank, slot});
}

void Builder::send_requests(std::uint32_t index) {
    Slot& slot = slots_[index];
    const bool all = settings_.order == Schedule::Order::all;
    while (!slot.sources_to_request.empty() &&
           (all || slot.requests_in_flight < settings_.parallel)) {
        const int rank = slot.sources_to_request.back();
        slot.sources_to_request.pop_back();
        SourceState& state = slot.source_states[static_cast<std::size_t>(source_number(rank))];
        if (rank != context_.rank && !context_.is_reachable(rank)) {
            state = SourceState::lost;
            --slot.pending_sources;
            continue;
        }
        state = SourceState::awaited;
        ++slot.requests_in_flight;
        const SlotMessage request{
            .group = slot.group.number, .bytes = 0, .slot = index, .messages = 0};
        if (rank == context_.rank) {
            readout_->on_request(rank, request);
        } else {
            receive(index, rank);
            context_.send_to_unit(rank, encode_slot(MessageKind::request, request));
        }
    }
}

void Builder::on_local_message(std::uint32_t index, const std::byte* data, std::size_t bytes) {
    // With filter units the event must be in the memory of the slot, from which it is sent.
    const bool copied = context_.verify && !settings_.units.filters.empty();
    if (copied) std::memcpy(source_data(index, source_number(context_.rank)), data, bytes);
    slots_[index].local_data = copied ? source_data(index, source_number(context_.rank)) : data;
    local_ready_.push_back(index);
}

void Builder::on_received(int rank, std::uint32_t index, bool success, Nanoseconds time) {
    if (success) verify(index, rank, time);
    else end_source(index, source_number(rank), SourceState::lost, time);
}

void Builder::verify(std::uint32_t index, int rank, Nanoseconds time) {
    Slot& slot = slots_[index];
    const int from = source_number(rank);
    MessageCheck check;
    if (context_.verify)
        check = verify_message(rank == context_.rank ? slot.local_data : source_data(index, from),
                               settings_.format, from, slot.group);
    else check.payload = settings_.format.payload_bytes(from, slot.group);
    if (check.state == MessageCheck::State::unexpected) {
        slot.duplicate += slot.group.events;
        receive(index, rank);  // the expected message is still to come
        return;
    }
    (rank == context_.rank ? context_.counters.report.received_local
                           : context_.counters.report.received) += check.payload;
    slot.verified += slot.group.events - check.damaged.size();
    slot.damaged += check.damaged.size();
    if (!check.damaged.empty() && slot.damaged_events.empty())
        slot.damaged_events.resize(slot.group.events);
    for (const std::uint32_t event : check.damaged) slot.damaged_events[event] = 1;
    for (const WrongByte& wrong : check.wrong_bytes)
        context_.send_to_manager(encode_damage({.source = rank,
                                                .event = wrong.event,
                                                .offset = wrong.offset,
                                                .expected = wrong.expected,
                                                .observed = wrong.observed}));
    end_source(index, from, check.damaged.empty() ? SourceState::verified : SourceState::damaged,
               time);
}

void Builder::end_source(std::uint32_t index, int from, SourceState state, Nanoseconds time) {
    Slot& slot = slots_[index];
    slot.source_states[static_cast<std::size_t>(from)] = state;
    slot.arrived_sources += state != SourceState::lost;
    --slot.pending_sources;
    if (settings_.pull) {
        --slot.requests_in_flight;
        send_requests(index);
    }
    if (slot.pending_sources == 0) on_gathered(index, time);
}

// Every source has delivered or is lost: the event is closed, delivered, or waits for lost sources.
void Builder::on_gathered(std::uint32_t index, Nanoseconds time) {
    Slot& slot = slots_[index];
    const bool waits_for_lost =
        settings_.policy == Policy::wait && slot.state == State::gathering &&
        slot.arrived_sources < slot.expected_sources &&
        std::ranges::find(slot.source_states, SourceState::lost) != slot.source_states.end();
    if (waits_for_lost) {
        slot.state = State::waiting;
        context_.send_to_manager(
            encode_parked({slot.group.number, {context_.rank, static_cast<std::uint16_t>(index)}}));
        request_from_returned(index);
        return;
    }
    count_outcome(slot);
    const bool complete = slot.outcome.events_incomplete == 0;
    if (complete) context_.counters.latency.record(time - slot.assigned_at);
    if (settings_.units.filters.empty() || (!complete && settings_.policy != Policy::mark)) {
        close_slot(index);
        return;
    }
    slot.state = State::delivering;
    ++delivering_;
    deliver(index);
}

// Policy wait: until when an event waits for its lost sources. A source has half of the timeout to
// come back, counted from its loss, so that a reassigned event does not wait the full time again.
Nanoseconds Builder::wait_limit(const Slot& slot) const {
    Nanoseconds last = 0;
    for (const int rank : settings_.units.readouts)
        if (slot.source_states[static_cast<std::size_t>(source_number(rank))] == SourceState::lost)
            last = std::max(last, context_.lost_at[static_cast<std::size_t>(rank)]);
    return last + settings_.timeout / 2;
}

// Counts the fragments and events of the slot for the ledger.
void Builder::count_outcome(Slot& slot) const {
    const std::uint64_t events = slot.group.events;
    Outcome& outcome = slot.outcome = {};
    outcome.lost = events * (slot.expected_sources - slot.arrived_sources);
    outcome.corrupt = slot.damaged;
    outcome.duplicate = slot.duplicate;
    const auto damaged_events =
        static_cast<std::uint64_t>(std::ranges::count(slot.damaged_events, 1));
    outcome.events_incomplete = outcome.lost > 0 ? events : damaged_events;
    outcome.events_built = events - outcome.events_incomplete;
    outcome.built = outcome.events_built * slot.expected_sources;
    outcome.partial = slot.verified - outcome.built;
}

void Builder::close_slot(std::uint32_t index) {
    Slot& slot = slots_[index];
    slot.state = State::closed;
    context_.send_to_manager(encode_done(
        {{slot.group.number, {context_.rank, static_cast<std::uint16_t>(index)}}, slot.outcome}));
}

// Makes the messages of the slot contiguous, so that one send carries them to a filter unit.
void Builder::compact(std::uint32_t index) {
    Slot& slot = slots_[index];
    if (slot.event_bytes > 0) return;
    std::byte* const begin = source_data(index, 0);
    for (std::size_t i = 0; i < slot.source_states.size(); ++i) {
        if (slot.source_states[i] != SourceState::verified) continue;
        const int from = static_cast<int>(i);
        const std::size_t bytes = settings_.format.message_bytes(from, slot.group);
        std::byte* const data = source_data(index, from);
        if (context_.verify && data != begin + slot.event_bytes)
            std::memmove(begin + slot.event_bytes, data, bytes);
        slot.event_bytes += bytes;
    }
}

// Chooses the filter unit by the group's number, so that an event that is built again is offered to
// the unit that may have received it already.
void Builder::deliver(std::uint32_t index) {
    Slot& slot = slots_[index];
    std::vector<int> filters = context_.members.intersect(settings_.units.filters);
    std::erase_if(filters, [this](int rank) { return !context_.is_reachable(rank); });
    if (filters.empty()) return;  // waits until a filter unit is reachable
    slot.filter = filters[slot.group.number % filters.size()];
    const auto intact_count =
        static_cast<std::uint32_t>(std::ranges::count(slot.source_states, SourceState::verified));
    compact(index);
    context_.send_to_unit(slot.filter, encode_slot(MessageKind::offer, {.group = slot.group.number,
                                                                        .bytes = slot.event_bytes,
                                                                        .slot = index,
                                                                        .messages = intact_count}));
}

void Builder::on_accept(int filter, const SlotMessage& message) {
    if (message.slot >= slots_.size()) return;
    Slot& slot = slots_[message.slot];
    if (slot.state != State::delivering || slot.filter != filter ||
        slot.group.number != message.group)
        return;
    slot.sending = true;
    context_.operations.send(source_data(message.slot, 0), slot.event_bytes, tag::event,
                             {OperationKind::send_event, filter, message.slot});
}

void Builder::on_confirm(int filter, const SlotMessage& message) {
    if (message.slot >= slots_.size()) return;
    Slot& slot = slots_[message.slot];
    if (slot.state != State::delivering || slot.filter != filter ||
        slot.group.number != message.group)
        return;
    if (message.messages > 0) {  // damaged between this rank and the filter unit
        Outcome& outcome = slot.outcome;
        const std::uint64_t fragments = outcome.built + outcome.partial;
        const std::uint64_t damaged_count = std::min<std::uint64_t>(message.messages, fragments);
        outcome.events_incomplete += std::exchange(outcome.events_built, 0);
        outcome.built = 0;
        outcome.corrupt += damaged_count;
        outcome.partial = fragments - damaged_count;
    }
    --delivering_;
    close_slot(message.slot);
}

void Builder::on_lost(int rank) {
    for (Slot& slot : slots_)
        if (slot.state == State::delivering && slot.filter == rank) slot.filter = -1;
}

// Requests the fragments that a waiting group lacks from lost sources that have come back.
void Builder::request_from_returned(std::uint32_t index) {
    Slot& slot = slots_[index];
    for (const int rank : settings_.units.readouts) {
        SourceState& state = slot.source_states[static_cast<std::size_t>(source_number(rank))];
        const bool is_own = rank == context_.rank;
        if (state != SourceState::lost || !context_.members.has(rank) ||
            !(is_own || context_.is_reachable(rank)))
            continue;
        state = SourceState::awaited;
        ++slot.pending_sources;
        ++slot.requests_in_flight;
        const SlotMessage request{
            .group = slot.group.number, .bytes = 0, .slot = index, .messages = 0};
        if (is_own) {
            readout_->on_request(rank, request);
        } else {
            receive(index, rank);
            context_.send_to_unit(rank, encode_slot(MessageKind::request, request));
        }
    }
}

void Builder::on_members() {
    for (std::uint32_t index = 0; index < slots_.size(); ++index)
        if (slots_[index].state == State::waiting) request_from_returned(index);
}

void Builder::advance(Nanoseconds time) {
    for (std::size_t i = 0; i < local_ready_.size(); ++i)
        verify(local_ready_[i], context_.rank, time);
    local_ready_.clear();
    if (settings_.policy == Policy::wait && settings_.timeout > 0) {
        for (std::uint32_t index = 0; index < slots_.size(); ++index) {
            Slot& slot = slots_[index];
            if (slot.state != State::waiting || slot.pending_sources > 0) continue;
            const bool is_complete = slot.arrived_sources == slot.expected_sources;
            const Nanoseconds limit = wait_limit(slot);
            if (!is_complete && time < limit) {
                context_.schedule_wake(limit);
                continue;
            }
            on_gathered(index, time);
        }
    }
    if (settings_.units.filters.empty()) return;
    for (std::uint32_t index = 0; index < slots_.size(); ++index)
        if (slots_[index].state == State::delivering && slots_[index].filter < 0 &&
            !slots_[index].sending)
            deliver(index);
    const bool blocked = delivering_ == static_cast<int>(slots_.size());
    if (blocked && blocked_since_ == 0) blocked_since_ = time;
    if (!blocked && blocked_since_ != 0) {
        context_.counters.report.waited_filter += time - blocked_since_;
        blocked_since_ = 0;
    }
}

}  // namespace assay::events
