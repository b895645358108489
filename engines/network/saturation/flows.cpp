// Sends and receives the flows of a round, and computes their rates (see flows.hpp).
#include "network/saturation/flows.hpp"

#include <algorithm>

namespace assay::network::saturate {
namespace {

constexpr int tag_flow = 4;
constexpr double overrun = 1.5;  // flows run for this multiple of the requested time
constexpr std::uint64_t data_marker = 0x676f696e67, end_marker = 0x656e646564;  // first words

// The flows of this rank. Each flow keeps `inflight` messages in flight and posts the next when one
// completes. In total it posts `inflight` receives plus one for each data message that arrived; the
// end markers use up the remaining receives, also if a marker, being short, overtakes an earlier
// message.
class Flows {
public:
    Flows(Session& session, const Round& round, int inflight)
        : session_(session), transport_(session.transport), round_(round), inflight_(inflight) {
        for (const FlowEnd flow : round.outgoing(session.rank())) outgoing_.push_back({flow});
        for (const FlowEnd flow : round.incoming(session.rank())) incoming_.push_back({flow});
        payload_.assign(outgoing_.empty() ? 0 : words_per_message(), data_marker);
        received_.resize(incoming_.size() * static_cast<std::size_t>(inflight) *
                         words_per_message());
    }

    bool has_no_flows() const { return outgoing_.empty() && incoming_.empty(); }
    void run();
    Outcome outcome();

private:
    struct OutgoingFlow {
        FlowEnd flow;
        std::int64_t posted = 0, completed = 0;  // posted: without end markers
        int end_markers = 0;
    };
    struct IncomingFlow {
        FlowEnd flow;
        int end_markers = 0;
        std::vector<Nanoseconds> times{};  // of arrival, since the barrier
    };
    struct Operation {
        bool outgoing;
        std::size_t flow;
        int slot;
    };

    std::size_t words_per_message() const { return (round_.size + 63) / 64 * 8; }
    std::uint64_t* slot_data(std::size_t flow, int slot) {
        return received_.data() +
               (flow * static_cast<std::size_t>(inflight_) + static_cast<std::size_t>(slot)) *
                   words_per_message();
    }
    void track(Ticket ticket, Operation operation) {
        const auto index = static_cast<std::size_t>(ticket);
        if (index >= operations_.size()) operations_.resize(index + 1);
        operations_[index] = operation;
    }
    // The size of a message. The first messages of the slots have increasing sizes, so that
    // messages of different slots do not start at the same time: while one starts up, others use
    // the wire.
    std::size_t message_bytes(std::int64_t message) const {
        if (message >= inflight_) return round_.size;
        const auto part = round_.size / static_cast<std::size_t>(inflight_) *
                          static_cast<std::size_t>(message + 1);
        return std::max(part, sizeof data_marker);
    }
    void post_send(std::size_t flow);
    void post_receive(std::size_t flow, int slot);
    void handle(const Operation& operation);
    void message_arrived(std::size_t flow, int slot);
    bool finished() const;
    std::vector<int> pending_peers() const;

    Session& session_;
    Transport& transport_;
    const Round& round_;
    const int inflight_;
    std::vector<OutgoingFlow> outgoing_;
    std::vector<IncomingFlow> incoming_;
    std::vector<std::uint64_t> payload_, received_;
    const std::vector<std::uint64_t> end_message_ = std::vector<std::uint64_t>(1, end_marker);
    std::vector<Operation> operations_;
    Nanoseconds begin_ = 0, clock_ = 0;
    std::uint64_t bytes_sent_off_host_ = 0;
};

void Flows::post_send(std::size_t flow) {
    OutgoingFlow& state = outgoing_[flow];
    const int to = state.flow.peer;
    if (seconds(clock_ - begin_) >= overrun * round_.seconds || Session::interrupted()) {
        ++state.end_markers;
        track(transport_.send(end_message_.data(), sizeof end_marker, to, tag_flow),
              {true, flow, 0});
        return;
    }
    const std::size_t size = message_bytes(state.posted);
    if (session_.host(to) != session_.host(session_.rank())) bytes_sent_off_host_ += size;
    ++state.posted;
    track(transport_.send(payload_.data(), size, to, tag_flow), {true, flow, 0});
}

void Flows::post_receive(std::size_t flow, int slot) {
    track(
        transport_.receive(slot_data(flow, slot), round_.size, incoming_[flow].flow.peer, tag_flow),
        {false, flow, slot});
}

void Flows::message_arrived(std::size_t flow, int slot) {
    IncomingFlow& state = incoming_[flow];
    const std::uint64_t word = *slot_data(flow, slot);
    if (word == end_marker) {
        ++state.end_markers;
        return;
    }
    if (word != data_marker)
        session_.fail("a message does not begin with the word that was sent",
                      "the network or the MPI library corrupts messages: run 'assay net'",
                      state.flow.peer);
    state.times.push_back(clock_ - begin_);
    post_receive(flow, slot);
}

void Flows::handle(const Operation& operation) {
    if (!operation.outgoing) {
        message_arrived(operation.flow, operation.slot);
        return;
    }
    OutgoingFlow& state = outgoing_[operation.flow];
    ++state.completed;
    if (state.end_markers < inflight_) post_send(operation.flow);
}

bool Flows::finished() const {
    return std::ranges::all_of(outgoing_,
                               [&](const OutgoingFlow& state) {
                                   return state.completed == state.posted + inflight_;
                               }) &&
           std::ranges::all_of(incoming_, [&](const IncomingFlow& state) {
               return state.end_markers == inflight_;
           });
}

std::vector<int> Flows::pending_peers() const {
    std::vector<int> peers;
    for (const IncomingFlow& state : incoming_)
        if (state.end_markers < inflight_) peers.push_back(state.flow.peer);
    for (const OutgoingFlow& state : outgoing_)
        if (peers.empty()) peers.push_back(state.flow.peer);
    return peers;
}

// No rank sends before all have posted their receives.
void Flows::run() {
    for (std::size_t flow = 0; flow < incoming_.size(); ++flow)
        for (int slot = 0; slot < inflight_; ++slot) post_receive(flow, slot);
    double ignored = 0;
    session_.max({&ignored, 1});
    begin_ = clock_ = transport_.clock();
    if (has_no_flows()) return;
    for (int slot = 0; slot < inflight_; ++slot)
        for (std::size_t flow = 0; flow < outgoing_.size(); ++flow) post_send(flow);
    session_.expect(overrun * round_.seconds);
    session_.note_progress(clock_);
    std::vector<Ticket> completed;
    std::vector<Operation> operations;
    while (!finished()) {
        completed.clear();
        transport_.poll(completed);
        clock_ = transport_.clock();
        if (completed.empty()) {
            session_.note_idle(clock_, [this] { return pending_peers(); });
            continue;
        }
        session_.note_progress(clock_);
        // Look up all operations first: handle() posts new ones, which reuse these tickets.
        operations.clear();
        for (const Ticket ticket : completed)
            operations.push_back(operations_[static_cast<std::size_t>(ticket)]);
        for (const Operation& operation : operations) handle(operation);
    }
}

// Messages that had arrived by `time`, with fractions of those in flight. A message in flight is
// assumed to move evenly from the arrival of its slot's previous message to its own arrival. So
// messages that share the wire and arrive together count like those that follow each other.
double arrived_by(const std::vector<Nanoseconds>& times, double time, std::size_t inflight) {
    const auto next = std::ranges::upper_bound(times, static_cast<Nanoseconds>(time));
    double arrived = static_cast<double>(next - times.begin());
    for (auto message = next;
         message != times.end() && message < next + static_cast<std::ptrdiff_t>(inflight);
         ++message) {
        const auto number = static_cast<std::size_t>(message - times.begin());
        const double from = number < inflight ? 0 : static_cast<double>(times[number - inflight]);
        arrived += std::clamp((time - from) / std::max(static_cast<double>(*message) - from, 1.0),
                              0.0, 1.0);
    }
    return arrived;
}

Outcome Flows::outcome() {
    constexpr double far_future = 1e18;
    // The latest start of steady state, the negated earliest end, and whether a rank was
    // interrupted. max() over all ranks then gives the common time.
    double common[] = {0, -far_future, Session::interrupted() ? 1.0 : 0.0};
    for (const IncomingFlow& state : incoming_) {
        const std::size_t slots_used =
            std::min(state.times.size(), static_cast<std::size_t>(inflight_));
        common[0] =
            std::max(common[0], slots_used == 0 ? far_future
                                                : static_cast<double>(state.times[slots_used - 1]));
        common[1] = std::max(
            common[1], slots_used == 0
                           ? 0
                           : -static_cast<double>(state.times[state.times.size() - slots_used]));
    }
    session_.max(common);
    Outcome result;
    const double from = common[0], to = std::min(-common[1], round_.seconds * 1e9);
    result.window = (to - from) * 1e-9;
    result.bytes_sent_off_host = bytes_sent_off_host_;
    result.interrupted = common[2] != 0;
    for (const IncomingFlow& state : incoming_) {
        FlowRate rate{state.flow.flow, 0, {}, static_cast<std::uint64_t>(state.times.size())};
        const auto arrived = [&](double time) {
            return arrived_by(state.times, time, static_cast<std::size_t>(inflight_));
        };
        const double slice = (to - from) / slices, size = static_cast<double>(round_.size);
        for (std::size_t i = 0; result.window > 0 && i < slices; ++i) {
            const double begin = from + slice * static_cast<double>(i);
            rate.slice_rates[i] = size * (arrived(begin + slice) - arrived(begin)) / (slice * 1e-9);
            rate.rate += rate.slice_rates[i] / slices;
        }
        result.flows.push_back(rate);
    }
    return result;
}

}  // namespace

Outcome run_flows(Session& session, const Round& round, int inflight) {
    Flows flows(session, round, inflight);
    flows.run();
    double ignored = 0;
    if (flows.has_no_flows()) session.max_sleeping(ignored);
    else session.max({&ignored, 1});
    return flows.outcome();
}

}  // namespace assay::network::saturate
