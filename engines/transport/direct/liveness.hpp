// Detects peers that have fallen silent. A separate thread sends a heartbeat datagram to every peer
// several times within the time limit, and records when each peer's last one arrived. So a host
// without power or network, or a stopped process, is detected although no connection is reset. A
// rank that computes for long does not count as silent, nor does a rank whose host has no free
// processor for it (silence_limit.hpp).
//
// Each heartbeat carries a keyed tag and a number that only grows, so that other programs can
// neither forge nor replay it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "transport/direct/rendezvous.hpp"
#include "transport/direct/silence_limit.hpp"

namespace assay::direct {

class Liveness {
public:
    // `socket` is not owned. A peer from which nothing arrives for `limit` is silent.
    Liveness(int socket, const Membership& self, Nanoseconds limit);
    Liveness(const Liveness&) = delete;
    Liveness& operator=(const Liveness&) = delete;
    ~Liveness() = default;

    // From now on heartbeats from `peer` are expected.
    void watch(int peer, const Address& address, int incarnation);
    void unwatch(int peer);
    // Forgets how long the peers have been silent.
    void restart();
    // Whether a heartbeat of the peer has arrived since watch().
    bool has_been_heard(int peer) const;
    // Whether some watched peer is silent; cheap.
    bool any_silent() const { return any_silent_.load(std::memory_order_relaxed); }
    std::vector<int> silent_peers();
    Nanoseconds limit() const { return limit_; }

private:
    struct Watched {
        bool active = false;
        Address address;
        int incarnation = 0;
        Nanoseconds since = 0, last = 0;
        std::uint64_t counter = 0;  // the highest received
        Delay delay;                // of its heartbeats
        bool is_silent = false;
    };
    void run(const std::stop_token& stop);
    void send_all();
    void receive_all(Nanoseconds time);
    void mark_silent(Nanoseconds time);

    const int socket_, rank_, incarnation_;
    const Nanoseconds limit_;
    std::array<unsigned char, 16> key_;
    mutable std::mutex mutex_;
    std::vector<Watched> watched_;
    std::uint64_t sent_ = 0;
    Nanoseconds resumed_ = 0;       // when this process last went on after a stop
    Nanoseconds last_watched_ = 0;  // when the last peer was added
    Delay delay_;                   // of this thread
    std::atomic<bool> any_silent_{false};
    std::jthread thread_;  // last member: starts after the others exist, and is joined first
};

}  // namespace assay::direct
