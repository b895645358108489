// A readout unit (see readout.hpp).
#include "events/readout.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "events/builder.hpp"

namespace assay::events {
namespace {

constexpr std::size_t cache_line = 64;

// Number of groups that are produced before they are assigned.
std::size_t produce_ahead(const Settings& settings) {
    return std::clamp<std::size_t>(settings.units.builders.size(), 1, 64);
}

int send_limit(const Settings& settings) {
    return settings.order == Schedule::Order::all ? std::numeric_limits<int>::max()
                                                  : settings.in_flight;
}

// Limit of the sends in flight to one builder unit. A builder unit that many sources send to at
// once is slow; without this limit soon all sends in flight are to it, and other links are idle.
// With two sends the second one follows the first without a gap.
int sends_to_each(const Settings& settings) {
    const int builders = std::max(1, static_cast<int>(settings.units.builders.size()) - 1);
    const int share = (settings.in_flight + builders - 1) / builders;
    return std::max(share, std::min(2, settings.in_flight));
}

}  // namespace

std::size_t aligned_capacity(const Settings& settings, int source) {
    const std::size_t bytes = settings.format.capacity(source, settings.events_per_message);
    return (bytes + cache_line - 1) / cache_line * cache_line;
}

std::size_t Readout::buffers(const Settings& settings) {
    return settings.units.builders.size() * static_cast<std::size_t>(settings.slots()) +
           produce_ahead(settings) + 2;
}

Readout::Readout(RankContext& context, Builder* local)
    : context_(context),
      settings_(context.settings),
      local_builder_(local),
      source_(context.settings.source_number(context.rank)),
      memory_(context.transport, aligned_capacity(context.settings, source_) *
                                     (context.verify ? buffers(context.settings) : 1)),
      buffers_(buffers(context.settings)),
      barrier_(context.rank),
      max_in_flight_(send_limit(context.settings)),
      max_to_each_(sends_to_each(context.settings)),
      random_(static_cast<std::uint32_t>(settings_.format.run_id * 1000003 +
                                         static_cast<std::uint64_t>(context.rank))) {
    const std::size_t size = aligned_capacity(settings_, source_);
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
        buffers_[i].data = memory_.data() + (context.verify ? i * size : 0);
        free_buffers_.push_back(static_cast<std::uint32_t>(i));
    }
    const std::size_t builders = settings_.units.builders.size();
    buffer_of_slot_.assign(builders * static_cast<std::size_t>(settings_.slots()), none);
    requested_group_.assign(buffer_of_slot_.size(), 0);
    shift_queues_.resize(builders);
    in_flight_to_.resize(builders);
}

void Readout::start(std::uint64_t next_group, Nanoseconds time) {
    next_group_ = first_group_ = next_group;
    input_start_ = time;
}

void Readout::on_members() {
    const Membership& members = context_.members;
    const std::vector<int> readouts = members.intersect(settings_.units.readouts),
                           builders = members.intersect(settings_.units.builders);
    for (const int builder : std::exchange(builders_, builders))
        if (!members.has(builder)) drop_queued(builder);
    shift_order_.clear();
    if (!settings_.in_rounds())
        for (const int to : context_.schedule.destinations(context_.rank, readouts, builders, 0))
            if (to != no_rank) shift_order_.push_back(to);
    shift_position_ = 0;
    if (!settings_.synchronised) return;
    started_steps_ = finished_steps_ = 0;
    done_steps_.clear();
    barrier_.begin(members.epoch, readouts);
    send_barrier_messages();
}

// What waits for a builder unit that is lost is not sent. The unit may come back, and its slots are
// served for other groups then.
void Readout::drop_queued(int builder) {
    auto& pending = shift_queues_[builder_index(builder)];
    shift_queued_ -= pending.size();
    pending.clear();
    const auto is_its = [&](std::uint32_t slot) {
        return slot != none && builder_of(slot) == builder;
    };
    std::erase_if(ready_, is_its);
    for (Round& round : rounds_) std::ranges::replace_if(round.steps, is_its, none);
}

std::size_t Readout::builder_index(int builder) const {
    const std::vector<int>& builders = settings_.units.builders;
    return static_cast<std::size_t>(std::ranges::lower_bound(builders, builder) - builders.begin());
}

std::size_t Readout::slot_index(const BuilderSlot& slot) const {
    return builder_index(slot.builder) * static_cast<std::size_t>(settings_.slots()) + slot.slot;
}

int Readout::builder_of(std::size_t slot_index) const {
    return settings_.units.builders[slot_index / static_cast<std::size_t>(settings_.slots())];
}

void Readout::release(std::uint32_t index) {
    Buffer& buffer = buffers_[index];
    buffer.resend = false;
    buffer.released = buffer.sends > 0;
    if (!buffer.released) free_buffers_.push_back(index);
}

void Readout::assign_buffer(std::size_t slot_index, std::uint32_t buffer) {
    if (buffer_of_slot_[slot_index] != none) release(buffer_of_slot_[slot_index]);
    buffer_of_slot_[slot_index] = buffer;
    buffers_[buffer].slot_index = slot_index;
    buffers_[buffer].epoch = 0;
}

// Pull: whether the builder unit has requested the group that is in its slot.
bool Readout::is_requested(std::size_t slot_index) const {
    const std::uint32_t buffer = buffer_of_slot_[slot_index];
    return buffer != none && requested_group_[slot_index] == buffers_[buffer].group + 1;
}

// Adds a slot to those to serve. A builder unit that came back may send a request before this rank
// learns that it is a member; it is not in the order of the shift then.
void Readout::enqueue(std::size_t slot_index) {
    if (settings_.pull && !is_requested(slot_index)) return;
    const bool is_member =
        std::ranges::find(shift_order_, builder_of(slot_index)) != shift_order_.end();
    if (!settings_.in_rounds() && settings_.order == Schedule::Order::shift &&
        (is_member || !settings_.pull)) {
        shift_queues_[slot_index / static_cast<std::size_t>(settings_.slots())].push_back(
            static_cast<std::uint32_t>(slot_index));
        ++shift_queued_;
    } else {
        ready_.push_back(static_cast<std::uint32_t>(slot_index));
    }
}

// Whether a batch means the process of the builder unit that is a member now, and not one that was
// lost after the batch was planned. Pull: who has requested a group gets it.
bool Readout::is_meant_for_current(const Batch& batch, int builder) const {
    return settings_.pull || context_.members.has_since(builder, batch.epoch);
}

// Puts the next group of the first batch into its slot, or takes the new plan that is its turn.
// Returns false if no group is produced yet.
bool Readout::assign_next() {
    if (batches_.empty()) return false;
    if (auto* steps = std::get_if<Steps>(&batches_.front())) {
        context_.schedule.follow(std::move(*steps));
        batches_.pop_front();
        return true;
    }
    const auto batch = std::get<std::shared_ptr<const Batch>>(batches_.front());
    if (next_in_batch_ < batch->reassigned.size()) {
        const Reassignment& moved = batch->reassigned[next_in_batch_++];
        const std::size_t from = slot_index(moved.from), to = slot_index(moved.to.target);
        const std::uint32_t buffer = buffer_of_slot_[from];
        if (buffer != none && buffers_[buffer].group == moved.to.group) {
            buffer_of_slot_[from] = none;
            assign_buffer(to, buffer);
            if (is_meant_for_current(*batch, moved.to.target.builder)) enqueue(to);
        }
    } else if (next_in_batch_ < batch->size()) {
        if (unassigned_.empty()) return false;
        const BuilderSlot& slot = batch->new_slots[next_in_batch_++ - batch->reassigned.size()];
        const std::size_t to = slot_index(slot);
        const std::uint32_t buffer = unassigned_.front();
        unassigned_.pop_front();
        assigned_events_ += settings_.group(buffers_[buffer].group).events;
        assign_buffer(to, buffer);
        const bool in_steps = !settings_.pull && settings_.in_rounds();
        if (!in_steps && is_meant_for_current(*batch, slot.builder)) enqueue(to);
    }
    if (next_in_batch_ == batch->size()) {
        if (!settings_.pull && settings_.in_rounds()) begin_round(*batch);
        batches_.pop_front();
        next_in_batch_ = 0;
    }
    return true;
}

void Readout::begin_round(const Batch& batch) {
    if (batch.new_slots.empty()) return;
    const Membership& members = context_.members;
    Round round{.epoch = batch.epoch};
    for (const int to : context_.schedule.destinations(
             context_.rank, members.intersect(settings_.units.readouts),
             members.intersect(settings_.units.builders), batch.number)) {
        const auto placed = std::ranges::find(batch.new_slots, to, &BuilderSlot::builder);
        round.steps.push_back(placed == batch.new_slots.end() || !is_meant_for_current(batch, to)
                                  ? none
                                  : static_cast<std::uint32_t>(slot_index(*placed)));
    }
    rounds_.push_back(std::move(round));
}

void Readout::fill_buffer(Buffer& buffer, std::uint64_t number) {
    const EventGroup group = settings_.group(number);
    buffer.group = number;
    buffer.resend = false;
    buffer.bytes = context_.verify ? write_message(buffer.data, settings_.format, source_, group)
                                   : settings_.format.message_bytes(source_, group);
    buffer.payload = settings_.format.payload_bytes(source_, group);
}

// Produces the next group if it is due and a buffer is free. Returns whether it did.
bool Readout::produce(Nanoseconds time) {
    if (settings_.events != 0 && next_group_ * settings_.events_per_message >= settings_.events)
        return false;
    if (settings_.rate > 0) {
        // After a stop the input goes on at its rate; it does not catch up.
        const Nanoseconds stopped = input_stopped_at_ == 0 ? 0 : time - input_stopped_at_;
        const double due =
            static_cast<double>(input_start_ + stopped) + produced_ / settings_.rate * 1e9;
        if (static_cast<double>(time) < due) {
            context_.schedule_wake(static_cast<Nanoseconds>(due) + 1);
            return false;
        }
    }
    // Some buffers stay free for groups that are requested again.
    if (free_buffers_.empty() || unassigned_.size() >= produce_ahead(settings_)) {
        if (input_stopped_at_ == 0) input_stopped_at_ = time;
        return false;
    }
    if (input_stopped_at_ != 0) {
        context_.counters.report.waited_credits += time - input_stopped_at_;
        input_start_ += time - input_stopped_at_;
        input_stopped_at_ = 0;
    }
    const std::uint32_t index = free_buffers_.back();
    free_buffers_.pop_back();
    fill_buffer(buffers_[index], next_group_++);
    produced_ += static_cast<double>(buffers_[index].payload);
    unassigned_.push_back(index);
    return true;
}

void Readout::on_request(int builder, const SlotMessage& request) {
    if (request.slot >= static_cast<std::uint32_t>(settings_.slots())) return;
    const std::size_t to = slot_index({builder, static_cast<std::uint16_t>(request.slot)});
    if (request.group < first_group_) {
        old_requests_.emplace_back(to, request.group);
        return;
    }
    requested_group_[to] = request.group + 1;
    if (buffer_of_slot_[to] != none && buffers_[buffer_of_slot_[to]].group == request.group)
        enqueue(to);
}

// Produces the groups that builder units have requested from before this rank was lost. The
// fragments are a function of the event, so they are the same as before.
void Readout::regenerate() {
    while (!old_requests_.empty() && !free_buffers_.empty()) {
        const auto [to, group] = old_requests_.back();
        old_requests_.pop_back();
        const std::uint32_t index = free_buffers_.back();
        free_buffers_.pop_back();
        fill_buffer(buffers_[index], group);
        assign_buffer(to, index);
        requested_group_[to] = group + 1;
        ready_.push_back(static_cast<std::uint32_t>(to));
    }
}

// Takes the next slot in the order of the shift whose builder unit may be sent to now; none if
// there is none.
std::uint32_t Readout::next_in_shift() {
    for (std::size_t i = 0; i < shift_order_.size(); ++i) {
        const std::size_t to = builder_index(shift_order_[shift_position_]);
        shift_position_ = (shift_position_ + 1) % shift_order_.size();
        auto& pending = shift_queues_[to];
        if (pending.empty() || in_flight_to_[to] >= max_to_each_) continue;
        const std::uint32_t slot_index = pending.front();
        pending.pop_front();
        --shift_queued_;
        return slot_index;
    }
    return none;
}

std::uint32_t Readout::next_ready() {
    if (shift_queued_ > 0)
        if (const std::uint32_t slot_index = next_in_shift(); slot_index != none) return slot_index;
    if (ready_.empty()) return none;
    if (settings_.order == Schedule::Order::random)
        std::swap(ready_.front(), ready_[random_() % ready_.size()]);
    const std::uint32_t slot_index = ready_.front();
    ready_.pop_front();
    return slot_index;
}

// Sends the group of a slot. Returns whether a send is in flight for it now.
bool Readout::send(std::size_t slot_index) {
    const std::uint32_t index = buffer_of_slot_[slot_index];
    const int to = builder_of(slot_index);
    if (index == none || !context_.is_reachable(to)) return false;
    Buffer& buffer = buffers_[index];
    if (buffer.sends > 0) {  // still on its way to a unit that is lost
        buffer.resend = true;
        return false;
    }
    const auto slot =
        static_cast<std::uint32_t>(slot_index % static_cast<std::size_t>(settings_.slots()));
    if (to == context_.rank) {
        local_builder_->on_local_message(slot, buffer.data, buffer.bytes);
        return false;
    }
    ++buffer.sends;
    ++in_flight_;
    ++in_flight_to_[builder_index(to)];
    context_.operations.send(buffer.data, buffer.bytes, tag::fragments + static_cast<int>(slot),
                             {OperationKind::send_fragment, to, index});
    return true;
}

void Readout::send_ready() {
    while (in_flight_ < max_in_flight_) {
        const std::uint32_t slot_index = next_ready();
        if (slot_index == none) return;
        // The group may have changed while it waited, if its builder unit was lost and is back.
        if (!settings_.pull || is_requested(slot_index)) send(slot_index);
    }
}

// Sends the steps of the rounds in their order. Returns whether there was a step to send.
bool Readout::send_rounds() {
    bool any = false;
    while (!rounds_.empty() && in_flight_ < max_in_flight_) {
        Round& round = rounds_.front();
        if (round.next == round.steps.size()) {
            rounds_.pop_front();
            continue;
        }
        // Ranks do not wait for each other in a round of an earlier epoch.
        const bool in_step = settings_.synchronised && round.epoch == context_.members.epoch;
        if (in_step &&
            started_steps_ >= barrier_.passed() + static_cast<std::uint64_t>(settings_.in_flight))
            return any;
        const std::uint32_t slot_index = round.steps[round.next++];
        any = true;
        const bool sent = slot_index != none && send(slot_index);
        if (!in_step) continue;
        done_steps_.push_back(false);
        if (sent) {
            buffers_[buffer_of_slot_[slot_index]].epoch = round.epoch;
            buffers_[buffer_of_slot_[slot_index]].step = started_steps_;
        }
        ++started_steps_;
        if (!sent) finish_step(started_steps_ - 1);
    }
    return any;
}

void Readout::finish_step(std::uint64_t step) {
    if (step < finished_steps_ || step - finished_steps_ >= done_steps_.size()) return;
    done_steps_[step - finished_steps_] = true;
    while (!done_steps_.empty() && done_steps_.front()) {
        done_steps_.pop_front();
        ++finished_steps_;
        barrier_.enter();
    }
    send_barrier_messages();
}

void Readout::send_barrier_messages() {
    for (const Barrier::Outgoing& out : barrier_.take_outgoing())
        context_.send_to_unit(out.peer, encode_barrier(out.message));
}

void Readout::on_sent(int builder, std::uint32_t index, bool success) {
    Buffer& buffer = buffers_[index];
    --buffer.sends;
    --in_flight_;
    --in_flight_to_[builder_index(builder)];
    if (success) context_.counters.report.sent += buffer.payload;
    if (buffer.epoch != 0) {
        if (buffer.epoch == context_.members.epoch) finish_step(buffer.step);
        buffer.epoch = 0;
    }
    if (buffer.released) {
        buffer.released = false;
        free_buffers_.push_back(index);
    } else if (buffer.resend) {
        buffer.resend = false;
        enqueue(buffer.slot_index);
    }
}

void Readout::advance(Nanoseconds time) {
    regenerate();
    // One group at a time, so that messages that arrive meanwhile are handled in between.
    // Production that had stopped goes on once groups are assigned.
    const bool was_full = unassigned_.size() >= produce_ahead(settings_);
    const bool produced = produce(time);
    while (assign_next()) {
    }
    send_ready();
    if (send_rounds()) send_barrier_messages();
    else if (settings_.synchronised) send_barrier_messages();
    if ((produced || was_full) && !free_buffers_.empty() &&
        unassigned_.size() < produce_ahead(settings_))
        context_.schedule_wake(time);
    context_.counters.report.assigned_events = assigned_events_;
}

}  // namespace assay::events
