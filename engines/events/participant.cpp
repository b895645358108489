#include "events/participant.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/interrupt.hpp"
#include "core/topology.hpp"

namespace assay::events {
namespace {

// After SIGINT or SIGTERM, for the manager to end the run.
constexpr Nanoseconds interrupted_limit = 5'000'000'000;

bool has(const std::vector<int>& ranks, int rank) {
    return std::ranges::binary_search(ranks, rank);
}

// Whether units send each other messages beside fragments.
bool units_talk(const Settings& s) {
    return s.pull || s.synchronised || s.policy == Policy::wait || !s.units.filters.empty();
}

double bytes_needed(const Settings& s, int rank) {
    std::size_t bytes = 0;
    if (has(s.units.readouts, rank))
        bytes += Readout::buffers(s) * aligned_capacity(s, s.source_number(rank));
    if (has(s.units.builders, rank)) bytes += Builder::memory_needed(s);
    if (has(s.units.filters, rank))
        bytes += 2 * Builder::memory_needed(s) / static_cast<std::size_t>(s.slots());
    return static_cast<double>(bytes);
}

}  // namespace

Participant::Participant(Transport& transport, const Settings& settings, Sink& sink)
    : sink_(sink),
      member_(transport, settings),
      settings_(settings),
      units_talk_(units_talk(settings)),
      from_manager_(manager_buffers),
      from_unit_(static_cast<std::size_t>(transport.size())),
      closed_(from_unit_.size()) {
    if (member_.rank == 0) director_.emplace(member_, sink);
}

void Participant::receive_from_manager(std::uint32_t buffer) {
    Bytes& bytes = from_manager_[buffer].bytes;
    bytes.resize(member_message(member_.transport.size()));
    member_.post.receive(bytes.data(), bytes.size(), tag::from_manager,
                         {Doing::from_manager, 0, buffer});
}

void Participant::receive_from_unit(int peer) {
    UnitBuffer& buffer = from_unit_[static_cast<std::size_t>(peer)];
    if (!units_talk_ || peer == member_.rank || buffer.posted) return;
    buffer.posted = true;
    member_.post.receive(buffer.bytes, sizeof buffer.bytes, tag::unit, {Doing::from_unit, peer, 0});
}

void Participant::greet() {
    const Identity identity = identify(member_.transport.host(), member_.transport.simulated());
    const Json hello = {{"identity", to_json(identity)},
                        {"needs", bytes_needed(settings_, member_.rank)},
                        {"available", static_cast<double>(available_memory())}};
    label_ = identity.host;
    if (director_) {
        director_->greet_self(hello.dump());
        return;
    }
    for (std::uint32_t buffer = 0; buffer < manager_buffers; ++buffer) receive_from_manager(buffer);
    member_.to_manager(write_hello(hello.dump()));
}

void Participant::start(const Welcome& welcome) {
    label_ = welcome.label;
    slice_ = welcome.slice;
    slice_begun_ = time_;
    started_ = true;
    const int rank = member_.rank;
    if (has(settings_.units.builders, rank)) builder_.emplace(member_);
    if (has(settings_.units.readouts, rank)) {
        readout_.emplace(member_, builder_ ? &*builder_ : nullptr);
        if (builder_) builder_->connect(&*readout_);
        readout_->start(welcome.next_bulk, time_);
    }
    if (has(settings_.units.filters, rank)) filter_.emplace(member_);
    for (int peer = 0; peer < member_.transport.size(); ++peer)
        if (welcome.membership.has(peer)) receive_from_unit(peer);
    member_.members = welcome.membership;
    on_members();
}

void Participant::on_members() {
    if (readout_) readout_->on_members();
    if (builder_) builder_->on_members();
}

void Participant::on_manager(std::span<const std::byte> message) {
    switch (kind_of(message)) {
        case MessageKind::welcome: start(read_welcome(message)); break;
        case MessageKind::members: {
            Membership members = read_members(message);
            if (members.since.size() != member_.members.since.size())
                throw Error("the manager has another number of ranks", "start all ranks together");
            for (std::size_t peer = 0; peer < members.since.size(); ++peer)
                if (member_.connected[peer] && members.since[peer] != member_.members.since[peer])
                    member_.reachable[peer] = true;
            for (std::size_t peer = 0; peer < members.since.size(); ++peer)
                if (members.since[peer] == 0 && member_.members.since[peer] != 0 &&
                    member_.connected[peer])
                    member_.lost_at[peer] = time_;
            member_.members = std::move(members);
            on_members();
            break;
        }
        case MessageKind::batch: {
            const auto batch = std::make_shared<const Batch>(read_batch(message));
            if (builder_) builder_->on_batch(*batch, time_);
            if (readout_) readout_->on_batch(batch);
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

void Participant::on_unit(int peer, std::span<const std::byte> message) {
    const MessageKind kind = kind_of(message);
    if (kind == MessageKind::close) {
        closed_[static_cast<std::size_t>(peer)] = true;
        return;
    }
    if (kind == MessageKind::barrier) {
        if (readout_) readout_->on_barrier(peer, read_barrier(message));
        return;
    }
    const SlotNote note = read_slot(message);
    if (kind == MessageKind::request && readout_ && has(settings_.units.builders, peer))
        readout_->on_request(peer, note);
    else if (kind == MessageKind::offer && filter_) filter_->on_offer(peer, note);
    else if (kind == MessageKind::take && builder_) builder_->on_take(peer, note);
    else if (kind == MessageKind::taken && builder_) builder_->on_taken(peer, note);
}

void Participant::read_manager() {
    while (from_manager_[next_from_manager_].arrived) {
        const std::uint32_t buffer = next_from_manager_;
        next_from_manager_ = (buffer + 1) % manager_buffers;
        from_manager_[buffer].arrived = false;
        const Bytes message = from_manager_[buffer].bytes;
        if (kind_of(message) == MessageKind::stop) ++stops_;
        else receive_from_manager(buffer);
        on_manager(message);
    }
}

void Participant::on_ended(const Operation& operation, bool success) {
    switch (operation.doing) {
        case Doing::mail: break;
        case Doing::from_rank: {
            if (!success) {
                director_->on_receive_failed(operation.peer);
                break;
            }
            director_->on_received(operation.peer, time_);
            break;
        }
        case Doing::from_manager:
            // Operations that end together may be reported in any order; messages are read in the
            // order of posting.
            if (success) from_manager_[operation.index].arrived = true;
            read_manager();
            break;
        case Doing::from_unit: {
            UnitBuffer& buffer = from_unit_[static_cast<std::size_t>(operation.peer)];
            buffer.posted = false;
            if (!success) break;
            const UnitBuffer copy = buffer;
            on_unit(operation.peer, copy.bytes);
            if (!closed_[static_cast<std::size_t>(operation.peer)])
                receive_from_unit(operation.peer);
            break;
        }
        case Doing::send_fragment: readout_->on_sent(operation.index, success); break;
        case Doing::receive_fragment:
            builder_->on_received(operation.peer, operation.index, success, time_);
            break;
        case Doing::send_event: builder_->on_event_sent(operation.index); break;
        case Doing::receive_event: filter_->on_received(operation.index, success, time_); break;
    }
}

void Participant::on_change(const PeerChange& change) {
    const auto peer = static_cast<std::size_t>(change.rank);
    const bool joined = change.state == PeerChange::State::joined;
    member_.connected[peer] = joined;
    member_.reachable[peer] = joined && member_.members.since[peer] == 0;
    if (!joined) member_.lost_at[peer] = time_;
    if (joined) {
        closed_[peer] = false;
        if (started_) receive_from_unit(change.rank);
        if (started_ && !director_) member_.to_manager(write_rank(MessageKind::sees, change.rank));
    } else {
        // A rank that came back too late finds no manager, and ends without an error.
        if (change.rank == 0 && !started_) stopping_ = true;
        if (change.rank == 0 && !stopping_)
            throw Error("rank 0, the event manager, was lost: events can no longer be given out",
                        "start again; see the last messages of its host");
        if (builder_) builder_->on_lost(change.rank);
        if (filter_) filter_->on_lost(change.rank);
        if (!director_ && member_.members.since[peer] != 0 && !stopping_)
            member_.to_manager(write_misses({change.rank, member_.members.since[peer]}));
    }
    if (director_) director_->on_change(change, time_);
}

void Participant::on_changes() {
    changes_.clear();
    member_.transport.peer_changes(changes_);
    for (const PeerChange& change : changes_) on_change(change);
}

void Participant::report(bool last) {
    Meter& meter = member_.meter;
    Report& now = meter.now;
    now.slice = slice_;
    now.last = last;
    now.span = time_ - slice_begun_;
    now.latency.clear();
    const auto counts = meter.latency.counts();
    for (std::size_t i = 0; meter.latency.total() > 0 && i < counts.size(); ++i)
        if (counts[i] > 0)
            now.latency.push_back(
                {static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(counts[i])});
    for (Bytes& message : write_report(now)) member_.to_manager(std::move(message));
    const std::uint64_t assigned = now.given;
    now = {};
    now.given = assigned;
    meter.latency.clear();
    slice_begun_ = time_;
    ++slice_;
}

void Participant::on_stop() {
    if (stopping_) return;
    stopping_ = true;
    if (!started_) return;  // it came back when the run was about to end
    report(true);
    for (int peer = 0; peer < member_.transport.size(); ++peer)
        if (units_talk_ && peer != member_.rank && member_.members.has(peer) &&
            member_.reaches(peer))
            member_.to_unit(peer, write_plain(MessageKind::close));
    member_.closed = true;
}

// All that this rank has posted has ended.
bool Participant::finished() const {
    if (!stopping_ || member_.post.mails() > 0 || (readout_ && !readout_->quiet())) return false;
    if (director_ && !director_->ended()) return false;
    if (!director_ && stops_ < manager_buffers && member_.reaches(0)) return false;
    return std::ranges::none_of(from_unit_, &UnitBuffer::posted);
}

void Participant::give_up(Nanoseconds waited) const {
    throw Error(fmt::format("no progress for {:.1f} s, waiting for {}", seconds(waited),
                            director_ ? director_->waits_for() : "the event manager, rank 0"),
                "check that these hosts are up and reachable, or raise --timeout");
}

// Nothing ended: gives the processor away after a while, and gives up after a long one.
void Participant::rest(std::size_t ended) {
    if (ended > 0) {
        last_activity_ = time_;
        return;
    }
    const Nanoseconds waited = time_ - last_activity_;
    if (waited > settings_.spin && !member_.transport.simulated()) sched_yield();
    if (waited > settings_.timeout * (director_ ? 1 : 2)) give_up(waited);
    if (!interrupted() || director_) return;
    // The manager ends the run; a rank that hears nothing of it ends itself.
    if (waited > interrupted_limit) throw Error("interrupted");
}

void Participant::run() {
    time_ = last_activity_ = member_.transport.clock();
    greet();
    while (!finished()) {
        if (started_ && !stopping_ && time_ - slice_begun_ >= settings_.slice) report(false);
        if (director_) {
            if (interrupted()) director_->interrupt();
            director_->advance(time_);
            while (!director_->to_self.empty()) {
                const auto message = director_->to_self.front();
                director_->to_self.pop_front();
                on_manager(*message);
            }
        }
        if (builder_) builder_->advance(time_);
        if (readout_) readout_->advance(time_);
        if (builder_ && readout_) builder_->advance(time_);  // its own fragments
        if (filter_) filter_->advance(time_);
        while (!member_.to_self.empty()) {
            const Bytes message = std::move(member_.to_self.front());
            member_.to_self.pop_front();
            director_->on_message(0, message, time_);
            member_.want(time_);
        }
        if (finished()) break;
        if (member_.wake != 0) member_.transport.wake_at(std::exchange(member_.wake, 0));
        const std::size_t ended = member_.post.poll(
            [this](const Operation& operation, bool success) { on_ended(operation, success); });
        time_ = member_.transport.clock();
        if (member_.transport.survives()) on_changes();
        rest(ended);
    }
    if (director_) director_->write_results();
}

}  // namespace assay::events
