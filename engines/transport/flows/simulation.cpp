// The messages, the ranks and the time of the flow transport (see simulation.hpp).
#include "transport/flows/simulation.hpp"

#include <algorithm>

#include "transport/null.hpp"

namespace assay::flows {
namespace {

// The first step of time while nothing is on its way, so that the ranks' time limits expire. Each
// further one is twice as long.
constexpr Nanoseconds first_idle_step = 100'000'000;

}  // namespace

Simulation::Simulation(const Network& network) : network_(network), shares_(network) {
    for (int number = 0; number < network.size(); ++number)
        ranks_.push_back(std::make_unique<Rank>());
}

Ticket Simulation::take_ticket(Rank& rank) {
    if (rank.free.empty()) return rank.next++;
    const Ticket ticket = rank.free.back();
    rank.free.pop_back();
    return ticket;
}

void Simulation::make_ready(int number) {
    if (std::exchange(rank(number).ready, true)) return;
    ready_.push_back(number);
}

void Simulation::complete(int number, Ticket ticket) {
    rank(number).completed.push_back(ticket);
    make_ready(number);
}

void Simulation::post_event(Nanoseconds time, Kind kind, std::uint32_t index) {
    events_.push({time, posted_events_++, kind, index});
}

std::uint32_t Simulation::store(Message message) {
    if (free_messages_.empty()) {
        messages_.push_back(std::move(message));
        return static_cast<std::uint32_t>(messages_.size() - 1);
    }
    const std::uint32_t index = free_messages_.back();
    free_messages_.pop_back();
    messages_[index] = std::move(message);
    return index;
}

Simulation::Inbox& Simulation::inbox(const Message& message) {
    Rank& receiver = rank(message.to);
    return is_small_message(message.tag) ? receiver.small : receiver.payload;
}

// The content of a small message is copied, so its send is complete at once.
Ticket Simulation::post_send(int number, const void* data, std::size_t bytes, int peer, int tag) {
    if (aborted_) throw Aborted(status_);
    const Ticket ticket = take_ticket(rank(number));
    Message message{.from = number,
                    .to = peer,
                    .tag = tag,
                    .bytes = static_cast<double>(bytes),
                    .ticket = ticket,
                    .content = {},
                    .arrived = false};
    if (is_small_message(tag)) {
        const auto* first = static_cast<const std::byte*>(data);
        message.content.assign(first, first + bytes);
        complete(number, ticket);
    }
    Inbox& to = inbox(message);
    to.waiting.push_back(store(std::move(message)));
    begin_waiting(to);
    return ticket;
}

Ticket Simulation::post_receive(int number, void* data, std::size_t bytes, int peer, int tag) {
    if (aborted_) throw Aborted(status_);
    Rank& receiver = rank(number);
    const Ticket ticket = take_ticket(receiver);
    Inbox& from = is_small_message(tag) ? receiver.small : receiver.payload;
    if (const auto arrived = from.arrivals.post_receive(data, bytes, peer, tag, ticket))
        complete(number, *arrived);
    begin_waiting(from);
    return ticket;
}

// Lets the messages that wait begin, as far as the receiver has requests for them.
void Simulation::begin_waiting(Inbox& inbox) {
    while (!inbox.waiting.empty() && inbox.on_way < inbox.arrivals.needed_requests()) {
        const std::uint32_t index = inbox.waiting.front();
        inbox.waiting.pop_front();
        ++inbox.on_way;
        begin(index);
    }
}

void Simulation::begin(std::uint32_t index) {
    const Message& message = messages_[index];
    if (is_small_message(message.tag)) inbox(message).coming.push_back(index);
    post_event(time_ + network_.latency(message.from, message.to), Kind::flow, index);
}

// Small messages are delivered in the order in which they were sent.
void Simulation::on_arrival(std::uint32_t index) {
    messages_[index].arrived = true;
    Inbox& at = inbox(messages_[index]);
    if (!is_small_message(messages_[index].tag)) {
        complete(messages_[index].from, messages_[index].ticket);
        deliver(at, index);
    }
    while (!at.coming.empty() && messages_[at.coming.front()].arrived) {
        const std::uint32_t first = at.coming.front();
        at.coming.pop_front();
        deliver(at, first);
    }
    begin_waiting(at);
}

void Simulation::deliver(Inbox& at, std::uint32_t index) {
    const Message& message = messages_[index];
    --at.on_way;
    const auto ticket = at.arrivals.on_message(message.content.data(), message.content.size(),
                                               message.from, message.tag);
    if (ticket) complete(message.to, *ticket);
    free_messages_.push_back(index);
}

void Simulation::wake_at(int number, Nanoseconds time) {
    rank(number).wake = time;
    post_event(std::max(time, time_), Kind::wake, static_cast<std::uint32_t>(number));
}

void Simulation::poll(int number, std::vector<Ticket>& completed) {
    Rank& self = rank(number);
    if (self.completed.empty() && !aborted_) {
        self.ready = false;
        self.fiber->stop();
    }
    if (aborted_) throw Aborted(status_);
    self.wake = 0;
    completed.insert(completed.end(), self.completed.begin(), self.completed.end());
    self.free.insert(self.free.end(), self.completed.begin(), self.completed.end());
    self.completed.clear();
}

void Simulation::make_all_ready() {
    for (int number = 0; number < network_.size(); ++number)
        if (!rank(number).fiber->ended()) make_ready(number);
}

void Simulation::end(int status) {
    if (!aborted_) status_ = status;
    aborted_ = true;
    make_all_ready();
}

void Simulation::on_event(const Event& event) {
    switch (event.kind) {
        case Kind::wake: {
            const int number = static_cast<int>(event.index);
            if (rank(number).wake != 0 && rank(number).wake <= time_) make_ready(number);
            break;
        }
        case Kind::flow: {
            const Message& message = messages_[event.index];
            shares_.start(event.index, message.from, message.to, message.bytes, time_);
            break;
        }
    }
}

// Advances the time to the next event, and handles all events of that time.
void Simulation::advance() {
    Nanoseconds next = shares_.next();
    if (!events_.empty()) next = std::min(next, events_.top().time);
    if (next == never) {
        idle_step_ = idle_step_ == 0 ? first_idle_step : 2 * idle_step_;
        time_ += idle_step_;
        make_all_ready();
        return;
    }
    idle_step_ = 0;
    time_ = std::max(time_, next);
    while (!events_.empty() && events_.top().time <= time_) {
        const Event event = events_.top();
        events_.pop();
        on_event(event);
    }
    ended_.clear();
    shares_.advance(time_, ended_);
    for (const std::uint32_t message : ended_) on_arrival(message);
}

void Simulation::run_ready() {
    while (!ready_.empty()) {
        const int number = ready_.front();
        ready_.pop_front();
        Fiber& fiber = *rank(number).fiber;
        if (fiber.ended()) continue;
        fiber.resume();
        running_ -= fiber.ended();
    }
}

}  // namespace assay::flows
