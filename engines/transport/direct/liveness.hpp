// Which peers are alive. A thread of its own sends a datagram to every peer a few times within the
// time limit, and notes when each was last heard. So a host that falls silent (power, a cable, a
// stopped process) is found although no connection is reset, and a rank that computes for long is
// not taken for dead. Nor is one whose host has no processor for it: see patience.hpp.
//
// Each datagram carries a keyed tag and a number that only grows: strangers can neither make nor
// repeat one.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "transport/direct/patience.hpp"
#include "transport/direct/rendezvous.hpp"

namespace assay::direct {

class Liveness {
public:
    // `socket` stays the caller's. `limit`: a peer that is not heard for so long is silent.
    Liveness(int socket, const Membership& self, Nanoseconds limit);
    Liveness(const Liveness&) = delete;
    Liveness& operator=(const Liveness&) = delete;
    ~Liveness() = default;

    // From now on `peer` must be heard.
    void watch(int peer, const Address& address, int incarnation);
    void forget(int peer);
    // Whether it was heard since watch().
    bool heard(int peer) const;
    // Whether some watched peer is silent; cheap.
    bool any_silent() const { return any_silent_.load(std::memory_order_relaxed); }
    // The peers that are silent now.
    std::vector<int> silent();
    Nanoseconds limit() const { return limit_; }

private:
    struct Watched {
        bool active = false;
        Address address;
        int incarnation = 0;
        Nanoseconds since = 0, last = 0;
        std::uint64_t counter = 0;  // the highest received
        Delay delay;                // of what it sends
        bool is_silent = false;
    };
    void run(const std::stop_token& stop);
    void send_all();
    void receive_all(Nanoseconds time);
    void judge(Nanoseconds time);

    const int socket_, rank_, incarnation_;
    const Nanoseconds limit_;
    std::array<unsigned char, 16> key_;
    mutable std::mutex mutex_;
    std::vector<Watched> watched_;
    std::uint64_t sent_ = 0;
    Nanoseconds resumed_ = 0;       // when this process last came back from a stop
    Nanoseconds last_watched_ = 0;  // when the last peer came
    Delay delay_;                   // of this thread
    std::atomic<bool> any_silent_{false};
    std::jthread thread_;  // last: starts after the others exist, and is joined first
};

}  // namespace assay::direct
