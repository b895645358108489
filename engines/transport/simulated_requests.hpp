// The requests of MPI that are in flight in SimGrid. Simulated time advances only while a rank
// waits, so poll() blocks until one has completed.
//
// Messages of the event builder are received in the order of arrival (arrivals.hpp), small ones and
// payloads over a communicator each: of payloads nothing is kept.
#pragma once

#include <mpi.h>
#include <simgrid/actor.h>
#include <simgrid/engine.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>

#include "core/error.hpp"
#include "transport/arrivals.hpp"

namespace assay {

class SimulatedRequests {
public:
    SimulatedRequests() : lanes_{Lane(most_small), Lane(most_payloads)} {
        for (Lane& lane : lanes_) MPI_Comm_dup(MPI_COMM_WORLD, &lane.communicator);
        for (Small& message : small_)
            message.memory = std::make_unique_for_overwrite<std::byte[]>(largest_small);
    }
    ~SimulatedRequests() {
        for (Lane& lane : lanes_) MPI_Comm_free(&lane.communicator);
    }
    SimulatedRequests(const SimulatedRequests&) = delete;
    SimulatedRequests& operator=(const SimulatedRequests&) = delete;

    template <class Start>
    Ticket begin(Start start) {
        const Ticket ticket = take();
        requests_.push_back(MPI_REQUEST_NULL);
        owners_.push_back(ticket);
        start(&requests_.back());
        return ticket;
    }
    // An operation that has completed already.
    Ticket completed() {
        done_.push_back(take());
        return done_.back();
    }
    MPI_Comm communicator(int tag) const {
        return is_any(tag) ? lanes_[lane_of(tag)].communicator : MPI_COMM_WORLD;
    }
    Ticket receive(void* data, std::size_t bytes, int peer, int tag) {
        if (!is_any(tag))
            return begin([&](MPI_Request* request) {
                MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, MPI_COMM_WORLD,
                          request);
            });
        const std::size_t lane = lane_of(tag);
        if (lane == small && bytes > largest_small)
            throw Error("the simulator takes no message of " + std::to_string(bytes) + " bytes",
                        "simulate fewer ranks");
        if (lane == payload) memory_ = data;
        const Ticket ticket = take();
        const auto here = lanes_[lane].arrivals.expect(data, bytes, peer, tag, ticket);
        if (here) done_.push_back(*here);
        post(lane);
        return ticket;
    }
    void poll(std::vector<Ticket>& completed, Nanoseconds wake) {
        if (done_.empty()) wait(wake);
        free_.insert(free_.end(), done_.begin(), done_.end());
        completed.insert(completed.end(), done_.begin(), done_.end());
        done_.clear();
    }
    static Nanoseconds clock() {
        return static_cast<Nanoseconds>(std::llround(simgrid_get_clock() * 1e9));
    }

private:
    static constexpr std::size_t small = 0, payload = 1;
    static constexpr std::size_t largest_small = 256 << 10, most_small = 4,
                                 most_payloads = 12;                           // requests
    static constexpr int first_any = 16, first_payload = 32, end_any = 16384;  // tags
    static constexpr int from_anyone = -1;  // owner: for a payload; below: less 1 and the place

    struct Lane {
        explicit Lane(std::size_t most) : arrivals(most) {}
        MPI_Comm communicator = MPI_COMM_NULL;
        Arrivals arrivals;
        std::size_t posted = 0;
    };
    // A small message, in a ring: they are told in the order in which they were sent, though a
    // long one ends after a short one.
    struct Small {
        std::unique_ptr<std::byte[]> memory;
        MPI_Status status;
        bool arrived = false;
    };
    static bool is_any(int tag) { return tag >= first_any && tag < end_any; }
    static std::size_t lane_of(int tag) { return tag < first_payload ? small : payload; }

    Ticket take() {
        if (free_.empty()) return next_++;
        const Ticket ticket = free_.back();
        free_.pop_back();
        return ticket;
    }
    // All payloads of a rank share one block, which has room for any.
    void post(std::size_t number) {
        Lane& lane = lanes_[number];
        for (; lane.posted < lane.arrivals.wanted(); ++lane.posted) {
            int owner = from_anyone;
            void* buffer = memory_;
            if (number == small) {
                const std::size_t place = (first_small_ + lane.posted) % most_small;
                owner = from_anyone - 1 - static_cast<int>(place);
                buffer = small_[place].memory.get();
            }
            requests_.push_back(MPI_REQUEST_NULL);
            owners_.push_back(owner);
            MPI_Irecv(buffer, static_cast<int>(number == small ? largest_small : largest_payload),
                      MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, lane.communicator, &requests_.back());
        }
    }
    void end(std::size_t index, const MPI_Status& status) {
        const int owner = owners_[index];
        requests_[index] = requests_.back();
        owners_[index] = owners_.back();
        requests_.pop_back();
        owners_.pop_back();
        if (owner > from_anyone) {
            done_.push_back(owner);
        } else if (owner == from_anyone) {
            arrive(payload, nullptr, status);
        } else {
            Small& told = small_[static_cast<std::size_t>(from_anyone - 1 - owner)];
            told.arrived = true;
            told.status = status;
            for (; small_[first_small_].arrived; first_small_ = (first_small_ + 1) % most_small) {
                small_[first_small_].arrived = false;
                arrive(small, small_[first_small_].memory.get(), small_[first_small_].status);
            }
            post(small);
        }
    }
    void arrive(std::size_t number, const std::byte* message, const MPI_Status& status) {
        int bytes = 0;
        if (message) MPI_Get_count(&status, MPI_BYTE, &bytes);
        Lane& lane = lanes_[number];
        --lane.posted;
        const auto ticket = lane.arrivals.arrive(message, static_cast<std::size_t>(bytes),
                                                 status.MPI_SOURCE, status.MPI_TAG);
        if (ticket) done_.push_back(*ticket);
        if (number == payload) post(payload);
    }
    // Until an operation has completed; or until the time, if it is not 0.
    //
    // No call of MPI waits for a time as well. So the rank naps until then, and tests after each
    // nap. A test takes no simulated time: SimGrid makes each one dearer than the last one of any
    // rank, up to milliseconds (smpi/test, smpi/grow-injected-times), unless it is told to.
    void wait(Nanoseconds wake) {
        constexpr Nanoseconds shortest_nap = 10, longest_nap = 1000;
        while (done_.empty()) {
            const int n = static_cast<int>(requests_.size());
            int index = MPI_UNDEFINED, any = 1;
            MPI_Status status;
            if (wake == 0 && n == 0) return;
            if (wake == 0) MPI_Waitany(n, requests_.data(), &index, &status);
            else if (clock() >= wake) return;
            else if (n > 0) MPI_Testany(n, requests_.data(), &index, &any, &status);
            if (any && index != MPI_UNDEFINED) {
                end(static_cast<std::size_t>(index), status);
                continue;
            }
            const Nanoseconds nap = std::clamp(wake - clock(), shortest_nap, longest_nap);
            sg_actor_sleep_for(static_cast<double>(nap) * 1e-9);
        }
    }

    static constexpr std::size_t largest_payload = 1U << 30;
    std::vector<MPI_Request> requests_;
    std::vector<int> owners_;  // of the requests: their tickets; or the lane that takes from anyone
    std::vector<Ticket> free_, done_;  // done: and not yet told
    Ticket next_ = 0;
    std::array<Lane, 2> lanes_;
    std::array<Small, most_small> small_;
    std::size_t first_small_ = 0;
    void* memory_ = nullptr;  // of payloads
};

}  // namespace assay
