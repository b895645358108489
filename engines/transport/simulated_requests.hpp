// The MPI requests in flight in SimGrid. Simulated time advances only while a rank waits, so poll()
// blocks until a request has completed.
//
// Messages of the event builder are received in the order of arrival (arrivals.hpp). There are two
// classes, small messages and payloads, each with a communicator of its own. The contents of
// payloads are discarded.
#pragma once

#include <mpi.h>
#include <simgrid/actor.h>
#include <simgrid/engine.h>
#include <xbt/config.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "transport/arrivals.hpp"

namespace assay {

class SimulatedRequests {
public:
    SimulatedRequests() : classes_{MessageClass(small_requests), MessageClass(payload_requests)} {
        for (MessageClass& message_class : classes_)
            MPI_Comm_dup(MPI_COMM_WORLD, &message_class.communicator);
        for (Small& message : small_)
            message.memory = std::make_unique_for_overwrite<std::byte[]>(max_small_bytes);
    }
    ~SimulatedRequests() {
        for (MessageClass& message_class : classes_) MPI_Comm_free(&message_class.communicator);
    }
    SimulatedRequests(const SimulatedRequests&) = delete;
    SimulatedRequests& operator=(const SimulatedRequests&) = delete;

    template <class Start>
    Ticket begin(Start start) {
        const Ticket ticket = take_ticket();
        requests_.push_back(MPI_REQUEST_NULL);
        owners_.push_back(ticket);
        start(&requests_.back());
        return ticket;
    }
    // An operation that has completed already.
    Ticket completed() {
        completed_.push_back(take_ticket());
        return completed_.back();
    }
    // Sends a copy of the data, so that the send completes at once.
    //
    // SimGrid searches all copies that a rank has sent, and that are not received yet, at every
    // completion: without a limit a burst takes a time that grows with the square of its messages.
    // So every limit_th message to a peer is a mark that can be waited for, and further sends
    // complete when all marks but the last are received. A message shorter than
    // smpi/async-small-thresh arrives without a receive, and the limit would hold it back.
    Ticket send_copy(const void* data, std::size_t bytes, int peer, int tag,
                     MPI_Comm communicator) {
        const int n = static_cast<int>(bytes);
        Unreceived& unreceived = unreceived_[peer];
        if (limit_ > 0 && bytes >= max_eager_bytes_ && ++unreceived.sent % limit_ == 0) {
            const auto* bytes_of = static_cast<const std::byte*>(data);
            Mark mark{peer, {bytes_of, bytes_of + bytes}};
            const Ticket ticket = begin([&](MPI_Request* request) {
                MPI_Issend(mark.copy.data(), n, MPI_BYTE, peer, tag, communicator, request);
            });
            marks_.emplace(ticket, std::move(mark));
            ++unreceived.marks;
        } else {
            MPI_Send(data, n, MPI_BYTE, peer, tag, communicator);
        }
        if (unreceived.marks <= 1) return completed();
        unreceived.waiting.push_back(take_ticket());
        return unreceived.waiting.back();
    }
    void limit_unreceived(int messages) { limit_ = messages; }
    MPI_Comm communicator(int tag) const {
        return is_from_any_source(tag) ? classes_[class_of(tag)].communicator : MPI_COMM_WORLD;
    }
    Ticket receive(void* data, std::size_t bytes, int peer, int tag) {
        if (!is_from_any_source(tag))
            return begin([&](MPI_Request* request) {
                MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, MPI_COMM_WORLD,
                          request);
            });
        const std::size_t message_class = class_of(tag);
        if (message_class == small && bytes > max_small_bytes)
            throw Error("the simulator takes no message of " + std::to_string(bytes) + " bytes",
                        "simulate fewer ranks");
        if (message_class == payload) payload_memory_ = data;
        const Ticket ticket = take_ticket();
        const auto arrived_ticket =
            classes_[message_class].arrivals.post_receive(data, bytes, peer, tag, ticket);
        if (arrived_ticket) completed_.push_back(*arrived_ticket);
        post_requests(message_class);
        return ticket;
    }
    void poll(std::vector<Ticket>& completed, Nanoseconds wake) {
        if (completed_.empty()) wait(wake);
        free_.insert(free_.end(), completed_.begin(), completed_.end());
        completed.insert(completed.end(), completed_.begin(), completed_.end());
        completed_.clear();
    }
    static Nanoseconds clock() {
        return static_cast<Nanoseconds>(std::llround(simgrid_get_clock() * 1e9));
    }

private:
    static constexpr std::size_t small = 0, payload = 1;
    static constexpr std::size_t max_small_bytes = 256 << 10;
    // The owner of a payload's request. That of a small message's request is this less 1 and the
    // index in small_.
    static constexpr int from_any_source = -1;

    struct MessageClass {
        explicit MessageClass(std::size_t max_requests) : arrivals(max_requests) {}
        MPI_Comm communicator = MPI_COMM_NULL;
        Arrivals arrivals;
        std::size_t posted = 0;
    };
    // A small message, in a ring. They are matched in the order of sending, although a long one
    // completes after a short one that was sent later.
    struct Small {
        std::unique_ptr<std::byte[]> memory;
        MPI_Status status;
        bool arrived = false;
    };
    // A message that is not sent from SimGrid's copy, and its copy.
    struct Mark {
        int peer;
        std::vector<std::byte> copy;
    };
    // The messages to a peer.
    struct Unreceived {
        int sent = 0, marks = 0;      // marks: not received yet
        std::vector<Ticket> waiting;  // for all marks but the last
    };
    static bool is_from_any_source(int tag) {
        return tag >= first_any_source && tag < end_any_source;
    }
    static std::size_t class_of(int tag) { return is_small_message(tag) ? small : payload; }

    Ticket take_ticket() {
        if (free_.empty()) return next_++;
        const Ticket ticket = free_.back();
        free_.pop_back();
        return ticket;
    }
    // Posts as many requests as the class needs. All payloads of a rank are received into the same
    // memory, which is large enough for each.
    void post_requests(std::size_t number) {
        MessageClass& message_class = classes_[number];
        for (; message_class.posted < message_class.arrivals.needed_requests();
             ++message_class.posted) {
            int owner = from_any_source;
            void* buffer = payload_memory_;
            if (number == small) {
                const std::size_t index = (first_small_ + message_class.posted) % small_requests;
                owner = from_any_source - 1 - static_cast<int>(index);
                buffer = small_[index].memory.get();
            }
            requests_.push_back(MPI_REQUEST_NULL);
            owners_.push_back(owner);
            MPI_Irecv(buffer,
                      static_cast<int>(number == small ? max_small_bytes : max_payload_bytes),
                      MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, message_class.communicator,
                      &requests_.back());
        }
    }
    void on_completed(std::size_t index, const MPI_Status& status) {
        const int owner = owners_[index];
        requests_[index] = requests_.back();
        owners_[index] = owners_.back();
        requests_.pop_back();
        owners_.pop_back();
        if (const auto mark = marks_.find(owner); mark != marks_.end()) {
            on_mark_received(unreceived_[mark->second.peer]);
            marks_.erase(mark);
            free_.push_back(owner);
        } else if (owner > from_any_source) {
            completed_.push_back(owner);
        } else if (owner == from_any_source) {
            match(payload, nullptr, status);
        } else {
            Small& message = small_[static_cast<std::size_t>(from_any_source - 1 - owner)];
            message.arrived = true;
            message.status = status;
            for (; small_[first_small_].arrived;
                 first_small_ = (first_small_ + 1) % small_requests) {
                small_[first_small_].arrived = false;
                match(small, small_[first_small_].memory.get(), small_[first_small_].status);
            }
            post_requests(small);
        }
    }
    void on_mark_received(Unreceived& unreceived) {
        if (--unreceived.marks > 1) return;
        completed_.insert(completed_.end(), unreceived.waiting.begin(), unreceived.waiting.end());
        unreceived.waiting.clear();
    }
    void match(std::size_t number, const std::byte* message, const MPI_Status& status) {
        int bytes = 0;
        if (message) MPI_Get_count(&status, MPI_BYTE, &bytes);
        MessageClass& message_class = classes_[number];
        --message_class.posted;
        const auto ticket = message_class.arrivals.on_message(
            message, static_cast<std::size_t>(bytes), status.MPI_SOURCE, status.MPI_TAG);
        if (ticket) completed_.push_back(*ticket);
        if (number == payload) post_requests(payload);
    }
    // Waits until an operation has completed, or until `wake` if it is not 0.
    //
    // MPI has no call that waits with a time limit. So the rank sleeps in steps and tests after
    // each. A test must take no simulated time. By default SimGrid injects a time that grows with
    // each test, up to milliseconds (smpi/test, smpi/grow-injected-times); for_each_rank() turns
    // that off.
    void wait(Nanoseconds wake) {
        constexpr Nanoseconds min_sleep = 10, max_sleep = 1000;
        while (completed_.empty()) {
            const int n = static_cast<int>(requests_.size());
            int index = MPI_UNDEFINED, has_completed = 1;
            MPI_Status status;
            if (wake == 0 && n == 0) return;
            if (wake == 0) MPI_Waitany(n, requests_.data(), &index, &status);
            else if (clock() >= wake) return;
            else if (n > 0) MPI_Testany(n, requests_.data(), &index, &has_completed, &status);
            if (has_completed && index != MPI_UNDEFINED) {
                on_completed(static_cast<std::size_t>(index), status);
                continue;
            }
            const Nanoseconds sleep = std::clamp(wake - clock(), min_sleep, max_sleep);
            sg_actor_sleep_for(static_cast<double>(sleep) * 1e-9);
        }
    }

    static constexpr std::size_t max_payload_bytes = 1U << 30;
    std::vector<MPI_Request> requests_;
    std::vector<int> owners_;  // of the requests: a ticket, or from_any_source and below
    std::vector<Ticket> free_, completed_;  // completed: not reported yet
    Ticket next_ = 0;
    std::array<MessageClass, 2> classes_;
    std::array<Small, small_requests> small_;
    std::size_t first_small_ = 0;
    void* payload_memory_ = nullptr;
    std::map<int, Unreceived> unreceived_;  // by peer
    std::map<Ticket, Mark> marks_;
    int limit_ = 0;  // messages to a peer from one mark to the next; 0: no marks
    const std::size_t max_eager_bytes_ =
        static_cast<std::size_t>(std::max(0, sg_cfg_get_int("smpi/async-small-thresh")));
};

}  // namespace assay
