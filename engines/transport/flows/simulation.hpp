// The ranks of the flow transport, their messages and the time. Time advances when every rank
// waits.
//
// Messages are received in the order of arrival, by few requests a rank, as in SimGrid
// (transport/arrivals.hpp). A payload becomes a flow when a request of its receiver is free; its
// contents are not kept. A small message takes its latency and its turn at its sender's first link,
// and no part of the links' rates from the flows.
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <queue>
#include <vector>

#include "transport/arrivals.hpp"
#include "transport/flows/fiber.hpp"
#include "transport/flows/shares.hpp"
#include "transport/transport.hpp"

namespace assay::flows {

class Simulation {
public:
    explicit Simulation(const Network& network);

    // Runs `body` as each rank until all have ended. Throws the error of the lowest rank that
    // failed; Aborted (transport/null.hpp) only if there was no other.
    void run(const std::function<void(Transport&)>& body);

    const Network& network() const { return network_; }
    Nanoseconds time() const { return time_; }
    Ticket post_send(int rank, const void* data, std::size_t bytes, int peer, int tag);
    Ticket post_receive(int rank, void* data, std::size_t bytes, int peer, int tag);
    void wake_at(int rank, Nanoseconds time);
    // Stops the rank until an operation has completed, or until its wake.
    void poll(int rank, std::vector<Ticket>& completed);
    void end(int status);  // makes the next call of every rank throw Aborted

private:
    struct Message {
        int from, to, tag;
        double bytes;
        Ticket ticket;                   // of the send; small: none
        std::vector<std::byte> content;  // of small messages
        bool arrived;
    };
    // The messages of a class for one rank: those that wait for a request, and those on their way.
    struct Inbox {
        explicit Inbox(std::size_t requests) : arrivals(requests) {}
        Arrivals arrivals;
        std::deque<std::uint32_t> waiting, coming;
        std::size_t on_way = 0;
    };
    struct Rank {
        std::unique_ptr<Fiber> fiber;
        Inbox small{small_requests}, payload{payload_requests};
        std::vector<Ticket> free, completed;
        Ticket next = 0;
        Nanoseconds wake = 0;
        bool ready = true;
        std::exception_ptr error;
    };
    enum class Kind : std::uint8_t { wake, flow };
    struct Event {
        Nanoseconds time;
        std::uint64_t number;  // in the order of posting, among events of one time
        Kind kind;
        std::uint32_t index;  // of the rank or the message
        bool operator<(const Event& other) const {
            return time != other.time ? time > other.time : number > other.number;
        }
    };

    Rank& rank(int number) { return *ranks_[static_cast<std::size_t>(number)]; }
    Inbox& inbox(const Message& message);
    Ticket take_ticket(Rank& rank);
    void complete(int rank, Ticket ticket);
    void make_ready(int rank);
    void make_all_ready();
    void post_event(Nanoseconds time, Kind kind, std::uint32_t index);
    std::uint32_t store(Message message);
    void begin_waiting(Inbox& inbox);
    void begin(std::uint32_t index);
    void on_arrival(std::uint32_t index);
    void deliver(Inbox& inbox, std::uint32_t index);
    void on_event(const Event& event);
    void advance();
    void run_ready();

    const Network& network_;
    Shares shares_;
    std::vector<std::unique_ptr<Rank>> ranks_;
    std::vector<Message> messages_;
    std::vector<std::uint32_t> free_messages_, ended_;
    std::priority_queue<Event> events_;
    std::deque<int> ready_;
    std::uint64_t posted_events_ = 0;
    std::size_t running_ = 0;
    Nanoseconds time_ = 0, idle_step_ = 0;
    int status_ = 0;
    bool aborted_ = false;
};

}  // namespace assay::flows
