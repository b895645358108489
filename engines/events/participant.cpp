// The loop of one rank of an event builder (see participant.hpp).
#include "events/participant.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/interrupt.hpp"
#include "core/topology.hpp"
#include "machine/available_memory.hpp"

namespace assay::events {
namespace {

// Longest pause between two polls while nothing completes.
constexpr Nanoseconds max_pause_between_polls = 1'000'000;
// After SIGINT or SIGTERM: time for the manager to end the run.
constexpr Nanoseconds interrupted_limit = 5'000'000'000;

bool contains(const std::vector<int>& ranks, int rank) {
    return std::ranges::binary_search(ranks, rank);
}

// Whether units send each other control messages beside fragments.
bool has_unit_messages(const Settings& s) {
    return s.pull || s.synchronised || s.policy == Policy::wait || !s.units.filters.empty();
}

// Memory for the buffers of a rank's units.
double bytes_needed(const Settings& s, int rank) {
    std::size_t bytes = 0;
    if (contains(s.units.readouts, rank))
        bytes += Readout::buffers(s) * aligned_capacity(s, s.source_number(rank));
    if (contains(s.units.builders, rank)) bytes += Builder::memory_needed(s);
    if (contains(s.units.filters, rank))
        bytes += 2 * Builder::memory_needed(s) / static_cast<std::size_t>(s.slots());
    return static_cast<double>(bytes);
}

}  // namespace

Participant::Participant(Transport& transport, const Settings& settings, Sink& sink)
    : sink_(sink),
      context_(transport, settings),
      settings_(settings),
      has_unit_messages_(has_unit_messages(settings)),
      from_manager_(manager_buffers),
      from_unit_(static_cast<std::size_t>(transport.size())),
      closed_by_peer_(from_unit_.size()) {
    if (context_.rank == 0) coordinator_.emplace(context_, sink);
}

void Participant::receive_from_manager(std::uint32_t buffer) {
    Bytes& bytes = from_manager_[buffer].bytes;
    bytes.resize(max_message_from_manager(context_.transport.size()));
    context_.operations.receive(bytes.data(), bytes.size(), tag::from_manager,
                                {OperationKind::receive_from_manager, 0, buffer});
}

void Participant::receive_from_unit(int peer) {
    UnitBuffer& buffer = from_unit_[static_cast<std::size_t>(peer)];
    if (!has_unit_messages_ || peer == context_.rank || buffer.posted) return;
    buffer.posted = true;
    context_.operations.receive(buffer.bytes, sizeof buffer.bytes, tag::unit,
                                {OperationKind::receive_from_unit, peer, 0});
}

void Participant::send_hello() {
    const Identity identity = identify(context_.transport.host(), context_.transport.simulated());
    const Json hello = {{"identity", to_json(identity)},
                        {"needs", bytes_needed(settings_, context_.rank)},
                        {"available", static_cast<double>(available_memory())}};
    label_ = identity.host;
    if (coordinator_) {
        coordinator_->on_own_hello(hello.dump());
        return;
    }
    for (std::uint32_t buffer = 0; buffer < manager_buffers; ++buffer) receive_from_manager(buffer);
    context_.send_to_manager(encode_hello(hello.dump()));
}

void Participant::start(const Welcome& welcome) {
    label_ = welcome.label;
    slice_ = welcome.slice;
    slice_start_ = time_;
    started_ = true;
    const int rank = context_.rank;
    if (contains(settings_.units.builders, rank)) builder_.emplace(context_);
    if (contains(settings_.units.readouts, rank)) {
        readout_.emplace(context_, builder_ ? &*builder_ : nullptr);
        if (builder_) builder_->connect(&*readout_);
        readout_->start(welcome.next_group, time_);
    }
    if (contains(settings_.units.filters, rank)) filter_.emplace(context_);
    for (int peer = 0; peer < context_.transport.size(); ++peer) {
        const bool is_member = welcome.membership.has(peer);
        if (is_member || context_.connected[static_cast<std::size_t>(peer)])
            receive_from_unit(peer);
        // It came back while this rank did.
        if (!is_member && context_.connected[static_cast<std::size_t>(peer)])
            context_.send_to_manager(encode_rank(MessageKind::peer_joined, peer));
    }
    context_.members = welcome.membership;
    on_members();
}

void Participant::on_members() {
    if (readout_) readout_->on_members();
    if (builder_) builder_->on_members();
}

void Participant::on_manager_message(std::span<const std::byte> message) {
    switch (read_kind(message)) {
        case MessageKind::welcome: start(read_welcome(message)); break;
        case MessageKind::members: {
            Membership members = read_members(message);
            if (members.since.size() != context_.members.since.size())
                throw Error("the manager has another number of ranks", "start all ranks together");
            // The new membership lists the connected process of these peers.
            for (std::size_t peer = 0; peer < members.since.size(); ++peer)
                if (context_.connected[peer] && members.since[peer] != context_.members.since[peer])
                    context_.reachable[peer] = true;
            for (std::size_t peer = 0; peer < members.since.size(); ++peer)
                if (members.since[peer] == 0 && context_.members.since[peer] != 0 &&
                    context_.connected[peer])
                    context_.lost_at[peer] = time_;
            context_.members = std::move(members);
            on_members();
            break;
        }
        case MessageKind::batch: {
            const auto batch = std::make_shared<const Batch>(read_batch(message));
            if (builder_) builder_->on_batch(*batch, time_);
            if (readout_) readout_->on_batch(batch);
            break;
        }
        case MessageKind::plan: {
            Steps steps = read_plan(message);
            // The readout unit changes its steps between the same two batches as all others.
            if (readout_) readout_->on_plan(std::move(steps));
            else context_.schedule.follow(std::move(steps));
            break;
        }
        case MessageKind::stop: on_stop(); break;
        case MessageKind::evict:
            throw Error("this rank was cut off from another and takes part no more",
                        "check the links of this host");
        default:
            throw Error("the manager sent a message of another version",
                        "run the same version of Assay on every host");
    }
}

void Participant::on_unit_message(int peer, std::span<const std::byte> message) {
    const MessageKind kind = read_kind(message);
    if (kind == MessageKind::close) {
        closed_by_peer_[static_cast<std::size_t>(peer)] = true;
        return;
    }
    if (kind == MessageKind::barrier) {
        if (readout_) readout_->on_barrier(peer, read_barrier(message));
        return;
    }
    const SlotMessage slot_message = read_slot(message);
    if (kind == MessageKind::request && readout_ && contains(settings_.units.builders, peer))
        readout_->on_request(peer, slot_message);
    else if (kind == MessageKind::offer && filter_) filter_->on_offer(peer, slot_message);
    else if (kind == MessageKind::accept && builder_) builder_->on_accept(peer, slot_message);
    else if (kind == MessageKind::confirm && builder_) builder_->on_confirm(peer, slot_message);
}

void Participant::read_manager_messages() {
    while (from_manager_[next_from_manager_].arrived) {
        const std::uint32_t buffer = next_from_manager_;
        next_from_manager_ = (buffer + 1) % manager_buffers;
        from_manager_[buffer].arrived = false;
        const Bytes message = from_manager_[buffer].bytes;
        if (read_kind(message) == MessageKind::stop) ++stops_received_;
        else receive_from_manager(buffer);
        on_manager_message(message);
    }
}

void Participant::on_completed(const Operation& operation, bool success) {
    switch (operation.kind) {
        case OperationKind::send_control: break;
        case OperationKind::receive_from_rank: {
            if (!success) {
                coordinator_->on_receive_failed(operation.peer);
                break;
            }
            coordinator_->on_received(operation.peer, time_);
            break;
        }
        case OperationKind::receive_from_manager:
            // Operations that end together may be reported in any order; messages are read in the
            // order of posting.
            if (success) from_manager_[operation.index].arrived = true;
            read_manager_messages();
            break;
        case OperationKind::receive_from_unit: {
            UnitBuffer& buffer = from_unit_[static_cast<std::size_t>(operation.peer)];
            buffer.posted = false;
            if (!success) break;
            const UnitBuffer copy = buffer;
            on_unit_message(operation.peer, copy.bytes);
            if (!closed_by_peer_[static_cast<std::size_t>(operation.peer)])
                receive_from_unit(operation.peer);
            break;
        }
        case OperationKind::send_fragment:
            readout_->on_sent(operation.peer, operation.index, success);
            break;
        case OperationKind::receive_fragment:
            builder_->on_received(operation.peer, operation.index, success, time_);
            break;
        case OperationKind::send_event: builder_->on_event_sent(operation.index); break;
        case OperationKind::receive_event:
            filter_->on_received(operation.index, success, time_);
            break;
    }
}

// Handles the loss or the return of a peer, as the transport reports it.
void Participant::on_change(const PeerChange& change) {
    const auto peer = static_cast<std::size_t>(change.rank);
    const bool joined = change.state == PeerChange::State::joined;
    context_.connected[peer] = joined;
    context_.reachable[peer] = joined && context_.members.since[peer] == 0;
    if (!joined) context_.lost_at[peer] = time_;
    if (joined) {
        closed_by_peer_[peer] = false;
        if (started_) receive_from_unit(change.rank);
        if (started_ && !coordinator_)
            context_.send_to_manager(encode_rank(MessageKind::peer_joined, change.rank));
    } else {
        // A link that has just come up may not lead to rank 0 yet. Where the run goes on, the
        // launcher starts the rank again, because it has failed.
        if (change.rank == 0 && !started_ && context_.transport.incarnation() > 0)
            throw Error("this rank came back and does not reach rank 0, the event manager",
                        "check the links of this host");
        if (change.rank == 0 && !started_) stopping_ = true;
        if (change.rank == 0 && !stopping_)
            throw Error("rank 0, the event manager, was lost: events can no longer be assigned",
                        "start again; see the last messages of its host");
        if (builder_) builder_->on_lost(change.rank);
        if (filter_) filter_->on_lost(change.rank);
        if (!coordinator_ && context_.members.since[peer] != 0 && !stopping_)
            context_.send_to_manager(encode_peer_lost({change.rank, context_.members.since[peer]}));
    }
    if (coordinator_) coordinator_->on_change(change, time_);
}

void Participant::on_changes() {
    changes_.clear();
    context_.transport.peer_changes(changes_);
    for (const PeerChange& change : changes_) on_change(change);
}

void Participant::send_report(bool last) {
    SliceCounters& counters = context_.counters;
    Report& current = counters.report;
    current.slice = slice_;
    current.last = last;
    current.span = time_ - slice_start_;
    if (last)
        for (const Counter& counter : context_.transport.counters()) {
            if (counter.name == "packets_sent") current.packets_sent = counter.value;
            if (counter.name == "packets_resent") current.packets_resent = counter.value;
        }
    current.latency.clear();
    const auto counts = counters.latency.counts();
    for (std::size_t i = 0; counters.latency.total() > 0 && i < counts.size(); ++i)
        if (counts[i] > 0)
            current.latency.push_back(
                {static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(counts[i])});
    for (Bytes& message : encode_report(current)) context_.send_to_manager(std::move(message));
    const std::uint64_t assigned_events = current.assigned_events;
    current = {};
    current.assigned_events = assigned_events;
    counters.latency.clear();
    slice_start_ = time_;
    ++slice_;
}

void Participant::on_stop() {
    if (stopping_) return;
    stopping_ = true;
    if (!started_) return;  // it came back when the run was about to end
    send_report(true);
    for (int peer = 0; peer < context_.transport.size(); ++peer)
        if (has_unit_messages_ && peer != context_.rank && context_.members.has(peer) &&
            context_.is_reachable(peer))
            context_.send_to_unit(peer, encode_empty(MessageKind::close));
    context_.closed = true;
}

// Whether the run has ended and all operations that this rank has posted have completed.
bool Participant::is_finished() const {
    if (!stopping_ || context_.operations.control_in_flight() > 0 ||
        (readout_ && !readout_->is_idle()))
        return false;
    if (coordinator_ && !coordinator_->ended()) return false;
    if (!coordinator_ && stops_received_ < manager_buffers && context_.is_reachable(0))
        return false;
    return std::ranges::none_of(from_unit_, &UnitBuffer::posted);
}

void Participant::throw_timeout(Nanoseconds waited) const {
    throw Error(
        fmt::format("no progress for {:.1f} s, waiting for {}", seconds(waited),
                    coordinator_ ? coordinator_->describe_awaited() : "the event manager, rank 0"),
        "check that these hosts are up and reachable, or raise --timeout");
}

// When nothing has completed: yields the processor after a while, fails after the timeout.
void Participant::yield_if_idle(std::size_t completed, Nanoseconds wake) {
    if (completed > 0) {
        last_activity_ = time_;
        return;
    }
    const Nanoseconds waited = time_ - last_activity_;
    const Nanoseconds limit =
        wake == 0 ? max_pause_between_polls : std::min(wake - time_, max_pause_between_polls);
    if (waited > settings_.yield_after && limit > 0 && !context_.transport.simulated())
        context_.transport.idle_wait(waited, limit);
    if (waited > settings_.timeout * (coordinator_ ? 1 : 2)) throw_timeout(waited);
    if (!interrupted() || coordinator_) return;
    // The manager ends the run; a rank that receives no stop ends itself.
    if (waited > interrupted_limit) throw Error("interrupted");
}

void Participant::run() {
    time_ = last_activity_ = context_.transport.clock();
    send_hello();
    while (!is_finished()) {
        if (started_ && !stopping_ && time_ - slice_start_ >= settings_.slice) send_report(false);
        if (coordinator_) {
            if (interrupted()) coordinator_->interrupt();
            coordinator_->advance(time_);
            while (!coordinator_->own_messages.empty()) {
                const auto message = coordinator_->own_messages.front();
                coordinator_->own_messages.pop_front();
                on_manager_message(*message);
            }
        }
        if (builder_) builder_->advance(time_);
        if (readout_) readout_->advance(time_);
        if (builder_ && readout_) builder_->advance(time_);  // its own fragments
        if (filter_) filter_->advance(time_);
        while (!context_.own_messages.empty()) {
            const Bytes message = std::move(context_.own_messages.front());
            context_.own_messages.pop_front();
            coordinator_->on_message(0, message, time_);
            context_.schedule_wake(time_);
        }
        if (is_finished()) break;
        const Nanoseconds wake = std::exchange(context_.wake, 0);
        if (wake != 0) context_.transport.wake_at(wake);
        const std::size_t completed = context_.operations.poll(
            [this](const Operation& operation, bool success) { on_completed(operation, success); });
        time_ = context_.transport.clock();
        if (context_.transport.survives()) on_changes();
        yield_if_idle(completed, wake);
    }
    if (coordinator_) coordinator_->write_results();
}

}  // namespace assay::events
