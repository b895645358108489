// Transfers, times and verifies one burst (see exchange.hpp).
#include "network/exchange.hpp"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/pattern.hpp"

namespace assay::network {
namespace {

constexpr int tag_payload = 1, tag_ack = 2;
constexpr std::size_t max_corruptions_of_burst = 16;  // per burst; all corruptions are counted
constexpr std::size_t cache_line = 64;

// Receives posted ahead of a flow.
int receive_depth(const Burst& burst) {
    const int depth = burst.op == Op::stream ? stream_depth(burst.inflight) : burst.inflight;
    return std::min(burst.window, depth);
}

// The first address from `data` on that begins a cache line.
std::byte* aligned(std::byte* data) {
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    return data + (cache_line - address % cache_line) % cache_line;
}

}  // namespace

const char* name(Op op) { return op == Op::put ? "put" : op == Op::get ? "get" : "send"; }

// The memory is not touched until a burst uses it.
Exchange::Exchange(Session& session, std::size_t bytes, bool one_sided)
    : session_(session),
      transport_(session.transport),
      one_sided_(one_sided),
      private_memory_(new std::byte[bytes + cache_line]) {
    if (one_sided) {
        window_ = session.guarded("creates its MPI window", -1,
                                  [&] { return transport_.create_window(bytes); });
        if (transport_.has_private_window() && session.rank() == 0)
            session.sink.context({.host = session.host(0)},
                                 {{"mpi.windows", "private: shared memory has no room for them"}});
    } else {
        window_memory_.reset(new std::byte[bytes + cache_line]);
        window_ = aligned(window_memory_.get());
    }
}

Exchange::~Exchange() {
    if (one_sided_) transport_.free_window();
}

Outcome Exchange::run(const Burst& burst, const Round& round, Histogram& latency) {
    burst_ = &burst;
    round_ = &round;
    latency_ = &latency;
    outcome_ = {};
    outgoing_ = burst.op == Op::get ? window_ : aligned(private_memory_.get());
    incoming_ = burst.op == Op::get ? aligned(private_memory_.get()) : window_;
    transport_.limit_unreceived(2 * stream_depth(burst.inflight));  // twice: receives never wait
    prepare();
    double flag = 0;
    session_.max({&flag, 1});
    clock_ = begin_ = timed_start();
    switch (burst.op) {
        case Op::stream: stream(); break;
        case Op::request: request(); break;
        case Op::put: put(); break;
        case Op::get: get(); break;
    }
    double ending[] = {Session::interrupted() ? 1.0 : 0.0, seconds(outcome_.elapsed)};
    session_.max(ending);
    outcome_.interrupted = ending[0] != 0;
    outcome_.longest = ending[1];
    const bool receiver = timed_by_receiver(burst.op);
    const auto& flows = receiver ? round.incoming : round.outgoing;
    const auto& states = receiver ? incoming_states_ : outgoing_states_;
    for (std::size_t i = 0; i < flows.size(); ++i)
        outcome_.flows.push_back({flows[i].peer, states[i].active});
    verify();
    return std::move(outcome_);
}

// Enters a barrier and returns the start of the timed part. No rank posts before all have entered
// the barrier, so the time of entering is never too late. The time of leaving can be too late by a
// whole message: an MPI that moves data while it completes the barrier returns after the data have
// arrived. So the barrier is assumed to last at most the median of the recent barriers.
Nanoseconds Exchange::timed_start() {
    const Nanoseconds entered = transport_.clock();
    double flag = 0;
    session_.max({&flag, 1});
    const Nanoseconds duration = transport_.clock() - entered;
    barrier_times_[barriers_timed_++ % barrier_times_.size()] = duration;
    auto recent = barrier_times_;
    const auto median =
        recent.begin() + static_cast<std::ptrdiff_t>(std::min(barriers_timed_, recent.size()) / 2);
    std::nth_element(
        recent.begin(), median,
        recent.begin() + static_cast<std::ptrdiff_t>(std::min(barriers_timed_, recent.size())));
    return entered + std::min(duration, *median);
}

// Stamps the outgoing messages, prepares the incoming slots and posts the first receives.
void Exchange::prepare() {
    const std::size_t messages = static_cast<std::size_t>(
        std::max(message_count(round_->outgoing), message_count(round_->incoming)));
    outgoing_states_.assign(round_->outgoing.size(), {});
    incoming_states_.assign(round_->incoming.size(), {});
    if (burst_->op == Op::request) {
        acks_sent_.resize(std::max(acks_sent_.size(), messages));
        acks_received_.resize(std::max(acks_received_.size(), messages));
        post_times_.resize(std::max(post_times_.size(), messages));
    }
    if (burst_->op == Op::get) post_times_.resize(std::max(post_times_.size(), messages));
    for (const Flow& flow : round_->outgoing)
        for (int slot = 0; slot < burst_->window; ++slot)
            stamp(outgoing_ + message_offset(flow.local_index, slot), burst_->size,
                  stamp_key(session_.rank(), flow.peer,
                            burst_->first_message + static_cast<std::uint64_t>(slot)));
    for (const Flow& flow : round_->incoming)
        for (int slot = 0; slot < burst_->window; ++slot)
            poison(incoming_ + message_offset(flow.local_index, slot), burst_->size,
                   stamp_key(flow.peer, session_.rank(),
                             burst_->first_message + static_cast<std::uint64_t>(slot)));
    if (one_sided(burst_->op)) return;
    for (int slot = 0; slot < receive_depth(*burst_); ++slot)
        for (std::size_t flow = 0; flow < incoming_states_.size(); ++flow)
            post_receive(static_cast<int>(flow), slot);
}

// Polls until finished(), and calls handle(operation) for each completed operation.
template <class Done, class Handle>
void Exchange::poll_until(Done finished, Handle handle) {
    session_.note_progress(clock_);
    while (!finished()) {
        tickets_.clear();
        transport_.poll(tickets_);
        clock_ = transport_.clock();
        if (tickets_.empty()) {
            session_.note_idle(clock_, [this] { return pending_peers(); });
            continue;
        }
        session_.note_progress(clock_);
        // Look up all operations first: handle() posts new ones, which reuse these tickets.
        completed_.clear();
        for (const Ticket ticket : tickets_)
            completed_.push_back(operations_[static_cast<std::size_t>(ticket)]);
        for (const Operation& operation : completed_) handle(operation);
    }
}

void Exchange::track(Ticket ticket, Operation operation) {
    const auto index = static_cast<std::size_t>(ticket);
    if (index >= operations_.size()) operations_.resize(index + 1);
    operations_[index] = operation;
}

void Exchange::begin_operation(FlowState& state) {
    if (state.inflight++ == 0) state.active_since = clock_;
}

void Exchange::end_operation(FlowState& state) {
    ++state.done;
    if (--state.inflight == 0) state.active += clock_ - state.active_since;
}

// Messages are sent round-robin over the flows.
void Exchange::post_send(int message) {
    const int flows = static_cast<int>(outgoing_states_.size()), flow = message % flows,
              slot = message / flows;
    const Flow& to = round_->outgoing[static_cast<std::size_t>(flow)];
    begin_operation(outgoing_states_[static_cast<std::size_t>(flow)]);
    if (burst_->op == Op::request) {
        post_ack_receive(flow, slot);
        post_times_[message_index(flow, slot)] = clock_;
    }
    track(transport_.send(outgoing_ + message_offset(to.local_index, slot), burst_->size, to.peer,
                          tag_payload),
          {Kind::send, flow, slot});
}

void Exchange::post_receive(int flow, int slot) {
    const Flow& from = round_->incoming[static_cast<std::size_t>(flow)];
    ++incoming_states_[static_cast<std::size_t>(flow)].receives_posted;
    track(transport_.receive(incoming_ + message_offset(from.local_index, slot), burst_->size,
                             from.peer, tag_payload),
          {Kind::receive, flow, slot});
}

void Exchange::post_ack_receive(int flow, int number) {
    track(transport_.receive(&acks_received_[message_index(flow, number)], sizeof(std::uint64_t),
                             round_->outgoing[static_cast<std::size_t>(flow)].peer, tag_ack),
          {Kind::ack_receive, flow, number});
}

void Exchange::stream() {
    const int outgoing_count = message_count(round_->outgoing),
              incoming_count = message_count(round_->incoming);
    int posted = 0, sent = 0, received = 0;
    while (posted < std::min(outgoing_count, burst_->inflight)) post_send(posted++);
    poll_until([&] { return sent == outgoing_count && received == incoming_count; },
               [&](Operation operation) {
                   const auto flow = static_cast<std::size_t>(operation.flow);
                   if (operation.kind == Kind::send) {
                       ++sent;
                       end_operation(outgoing_states_[flow]);
                       if (posted < outgoing_count) post_send(posted++);
                       return;
                   }
                   FlowState& state = incoming_states_[flow];
                   ++state.done;
                   ++received;
                   state.active = clock_ - begin_;
                   if (state.receives_posted < burst_->window)
                       post_receive(operation.flow, state.receives_posted);
               });
    for (const FlowState& state : incoming_states_)
        outcome_.elapsed = std::max(outcome_.elapsed, state.active);
    outcome_.operations = static_cast<std::uint64_t>(incoming_count);
}

// A client sends, a server acknowledges; in a round of pairs each rank does both.
void Exchange::request() {
    const int send_count = message_count(round_->outgoing),
              acknowledge_count = message_count(round_->incoming);
    int posted = 0, sent = 0, completed = 0, acks_sent = 0;
    const auto acknowledge = [&](Operation operation) {
        FlowState& state = incoming_states_[static_cast<std::size_t>(operation.flow)];
        ++state.done;
        if (state.receives_posted < burst_->window)
            post_receive(operation.flow, state.receives_posted);
        std::uint64_t& number = acks_sent_[message_index(operation.flow, operation.slot)];
        number = burst_->first_message + static_cast<std::uint64_t>(operation.slot);
        track(transport_.send(&number, sizeof number,
                              round_->incoming[static_cast<std::size_t>(operation.flow)].peer,
                              tag_ack),
              {Kind::ack_send, operation.flow, operation.slot});
    };
    // Acknowledgements may arrive out of order; each carries the number of its message.
    const auto complete = [&](Operation operation) {
        const std::uint64_t slot =
            acks_received_[message_index(operation.flow, operation.slot)] - burst_->first_message;
        if (slot >= static_cast<std::uint64_t>(burst_->window))
            session_.fail("an acknowledgement names a message that was not sent",
                          "the network or the MPI library corrupts messages",
                          round_->outgoing[static_cast<std::size_t>(operation.flow)].peer);
        latency_->record(clock_ -
                         post_times_[message_index(operation.flow, static_cast<int>(slot))]);
        end_operation(outgoing_states_[static_cast<std::size_t>(operation.flow)]);
        ++completed;
        outcome_.elapsed = clock_ - begin_;
        if (posted < send_count) post_send(posted++);
    };
    while (posted < std::min(send_count, burst_->inflight)) post_send(posted++);
    poll_until(
        [&] {
            return sent == send_count && completed == send_count && acks_sent == acknowledge_count;
        },
        [&](Operation operation) {
            switch (operation.kind) {
                case Kind::receive: acknowledge(operation); break;
                case Kind::ack_receive: complete(operation); break;
                case Kind::send: ++sent; break;
                default: ++acks_sent;
            }
        });
    outcome_.operations = static_cast<std::uint64_t>(send_count);
}

// Puts in batches of `inflight`, each followed by a flush of every target.
void Exchange::put() {
    const int outgoing_count = message_count(round_->outgoing),
              flows = static_cast<int>(outgoing_states_.size());
    for (int begin = 0; begin < outgoing_count;) {
        const int end = std::min(outgoing_count, begin + burst_->inflight);
        const Nanoseconds posted = clock_;
        for (int message = begin; message < end; ++message) {
            const Flow& to = round_->outgoing[static_cast<std::size_t>(message % flows)];
            begin_operation(outgoing_states_[static_cast<std::size_t>(message % flows)]);
            const std::size_t target = message_offset(to.peer_index, message / flows);
            transport_.put(outgoing_ + message_offset(to.local_index, message / flows),
                           burst_->size, to.peer, target);
        }
        for (int i = begin; i < std::min(end, begin + flows); ++i) {
            FlowState& state = outgoing_states_[static_cast<std::size_t>(i % flows)];
            const int peer = round_->outgoing[static_cast<std::size_t>(i % flows)].peer;
            session_.guarded(
                "waits for puts to complete", peer, [&] { transport_.flush(peer); }, clock_);
            clock_ = transport_.clock();
            while (state.inflight > 0) {
                latency_->record(clock_ - posted);
                end_operation(state);
            }
        }
        begin = end;
    }
    outcome_.elapsed = outgoing_count ? clock_ - begin_ : 0;
    outcome_.operations = static_cast<std::uint64_t>(outgoing_count);
}

void Exchange::get() {
    const int incoming_count = message_count(round_->incoming),
              flows = static_cast<int>(incoming_states_.size());
    int posted = 0, received = 0;
    const auto post = [&] {
        const int flow = posted % flows, slot = posted / flows;
        const Flow& from = round_->incoming[static_cast<std::size_t>(flow)];
        begin_operation(incoming_states_[static_cast<std::size_t>(flow)]);
        post_times_[message_index(flow, slot)] = clock_;
        ++posted;
        track(transport_.get(incoming_ + message_offset(from.local_index, slot), burst_->size,
                             from.peer, message_offset(from.peer_index, slot)),
              {Kind::get, flow, slot});
    };
    while (posted < std::min(incoming_count, burst_->inflight)) post();
    poll_until(
        [&] { return received == incoming_count; },
        [&](Operation operation) {
            latency_->record(clock_ - post_times_[message_index(operation.flow, operation.slot)]);
            end_operation(incoming_states_[static_cast<std::size_t>(operation.flow)]);
            ++received;
            outcome_.elapsed = clock_ - begin_;
            if (posted < incoming_count) post();
        });
    outcome_.operations = static_cast<std::uint64_t>(incoming_count);
}

void Exchange::verify() {
    for (const Flow& flow : round_->incoming) {
        for (int slot = 0; slot < burst_->window; ++slot) {
            const std::uint64_t message = burst_->first_message + static_cast<std::uint64_t>(slot);
            const std::uint64_t key = stamp_key(flow.peer, session_.rank(), message);
            const std::byte* data = incoming_ + message_offset(flow.local_index, slot);
            const auto wrong_byte =
                burst_->verify ? first_wrong_byte(data, burst_->size, key) : std::nullopt;
            if (!wrong_byte) {
                outcome_.bytes += burst_->size;
                continue;
            }
            ++outcome_.corrupted;
            outcome_.corrupted_sources.push_back(flow.peer);
            if (outcome_.corruptions.size() >= max_corruptions_of_burst) continue;
            const std::size_t word = *wrong_byte / 8 * 8;
            std::uint64_t observed = stamped_word(key, word);
            std::memcpy(&observed, data + word, std::min<std::size_t>(8, burst_->size - word));
            outcome_.corruptions.push_back(
                {flow.peer, message, *wrong_byte, stamped_word(key, word), observed});
        }
    }
}

std::vector<int> Exchange::pending_peers() const {
    std::vector<int> peers;
    const auto add_pending = [&](const std::vector<Flow>& flows,
                                 const std::vector<FlowState>& states) {
        for (std::size_t i = 0; i < states.size(); ++i) {
            const int peer = flows[i].peer;
            if (states[i].done < burst_->window && std::ranges::find(peers, peer) == peers.end())
                peers.push_back(peer);
        }
    };
    add_pending(round_->outgoing, outgoing_states_);
    add_pending(round_->incoming, incoming_states_);
    return peers;
}

}  // namespace assay::network
