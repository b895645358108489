// Sends and receives heartbeats, and marks silent peers (see liveness.hpp).
#include "transport/direct/liveness.hpp"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sodium/crypto_shorthash_siphash24.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "session/handshake.hpp"

namespace assay::direct {
namespace {

constexpr int heartbeats_per_limit = 5;  // so that single lost datagrams do not matter
constexpr Nanoseconds startup_time = 1'000'000'000, startup_period = 20'000'000;
constexpr std::uint32_t magic = 0x62687361;  // "ashb"

struct Heartbeat {
    std::uint32_t magic, rank, incarnation, to;
    std::uint64_t counter;
    std::array<unsigned char, 8> tag;
};
static_assert(sizeof(Heartbeat) == 32);
constexpr std::size_t signed_bytes = sizeof(Heartbeat) - sizeof(Heartbeat::tag);

std::array<unsigned char, 8> compute_tag(const Heartbeat& heartbeat,
                                         const std::array<unsigned char, 16>& key) {
    static_assert(crypto_shorthash_siphash24_BYTES == 8 &&
                  crypto_shorthash_siphash24_KEYBYTES == 16);
    std::array<unsigned char, 8> tag;
    crypto_shorthash_siphash24(tag.data(), reinterpret_cast<const unsigned char*>(&heartbeat),
                               signed_bytes, key.data());
    return tag;
}

// Gives this thread real-time priority if the process has the right to. It sleeps nearly always,
// and then runs before threads that compute.
void raise_priority() {
    sched_param priority{};
    priority.sched_priority = 1;
    pthread_setschedparam(pthread_self(), SCHED_RR, &priority);
}

}  // namespace

Liveness::Liveness(int socket, const Membership& self, Nanoseconds limit)
    : socket_(socket),
      rank_(self.rank),
      incarnation_(self.incarnation),
      limit_(limit),
      watched_(self.peers.size()) {
    const session::Proof derived = session::sign(self.token, "assay transport heartbeat");
    std::copy_n(derived.begin(), key_.size(), key_.begin());
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void Liveness::watch(int peer, const Address& address, int incarnation) {
    const std::lock_guard lock(mutex_);
    Watched& entry = watched_[static_cast<std::size_t>(peer)];
    entry = {};
    entry.active = true;
    entry.address = address;
    entry.incarnation = incarnation;
    entry.since = last_watched_ = now();
}

void Liveness::unwatch(int peer) {
    const std::lock_guard lock(mutex_);
    watched_[static_cast<std::size_t>(peer)] = {};
}

void Liveness::restart() {
    const std::lock_guard lock(mutex_);
    for (Watched& entry : watched_) {
        entry.since = now();
        entry.is_silent = false;
    }
    any_silent_.store(false, std::memory_order_relaxed);
}

bool Liveness::has_been_heard(int peer) const {
    const std::lock_guard lock(mutex_);
    return watched_[static_cast<std::size_t>(peer)].last != 0;
}

std::vector<int> Liveness::silent_peers() {
    const std::lock_guard lock(mutex_);
    std::vector<int> peers;
    for (std::size_t peer = 0; peer < watched_.size(); ++peer)
        if (watched_[peer].is_silent) peers.push_back(static_cast<int>(peer));
    any_silent_.store(false, std::memory_order_relaxed);
    return peers;
}

void Liveness::run(const std::stop_token& stop) {
    raise_priority();
    const Nanoseconds usual_period = limit_ / heartbeats_per_limit;
    Nanoseconds next = now(), last = next;
    while (!stop.stop_requested()) {
        const Nanoseconds wait =
            (std::clamp<Nanoseconds>(next - now(), 0, 20'000'000) + 999'999) / 1'000'000;
        pollfd polled{socket_, POLLIN, 0};
        ::poll(&polled, 1, static_cast<int>(wait));
        const Nanoseconds time = now();
        const std::lock_guard lock(mutex_);
        delay_.record(time - last - wait * 1'000'000, time);
        // The thread slept far too long: this process was stopped, so the peers may not be silent.
        if (time - last > limit_ / 2) resumed_ = time;
        last = time;
        receive_all(time);
        if (time < next && !(time - last_watched_ < startup_time && next - time > startup_period))
            continue;
        send_all();
        mark_silent(time);
        // A shorter period after a peer has come, so that both sides soon hear each other.
        const Nanoseconds period = time - last_watched_ < startup_time
                                       ? std::min(usual_period, startup_period)
                                       : usual_period;
        next = time + period;
    }
}

void Liveness::send_all() {
    ++sent_;
    for (std::size_t peer = 0; peer < watched_.size(); ++peer) {
        const Watched& entry = watched_[peer];
        if (!entry.active) continue;
        Heartbeat heartbeat{magic,
                            static_cast<std::uint32_t>(rank_),
                            static_cast<std::uint32_t>(incarnation_),
                            static_cast<std::uint32_t>(peer),
                            sent_,
                            {}};
        heartbeat.tag = compute_tag(heartbeat, key_);
        sendto(socket_, &heartbeat, sizeof heartbeat, MSG_DONTWAIT, entry.address.data(),
               entry.address.length);
    }
}

void Liveness::receive_all(Nanoseconds time) {
    Heartbeat heartbeat;
    // One byte longer than a heartbeat, so that longer datagrams are recognised.
    std::array<unsigned char, sizeof heartbeat + 1> datagram;
    // A flood from strangers must not keep this thread from sending.
    for (std::size_t left = 64 + 4 * watched_.size(); left > 0; --left) {
        const ssize_t n = recv(socket_, datagram.data(), datagram.size(), MSG_DONTWAIT);
        if (n < 0) return;
        if (n != sizeof heartbeat) continue;
        std::memcpy(&heartbeat, datagram.data(), sizeof heartbeat);
        if (heartbeat.magic != magic || heartbeat.rank >= watched_.size() ||
            heartbeat.to != static_cast<std::uint32_t>(rank_) ||
            heartbeat.tag != compute_tag(heartbeat, key_))
            continue;
        Watched& entry = watched_[heartbeat.rank];
        if (!entry.active ||
            heartbeat.incarnation != static_cast<std::uint32_t>(entry.incarnation) ||
            heartbeat.counter <= entry.counter)
            continue;
        entry.counter = heartbeat.counter;
        if (entry.last != 0)
            entry.delay.record(time - entry.last - limit_ / heartbeats_per_limit, time);
        entry.last = time;
        entry.is_silent = false;
    }
}

void Liveness::mark_silent(Nanoseconds time) {
    for (Watched& entry : watched_) {
        if (!entry.active || entry.is_silent) continue;
        const Nanoseconds limit =
            silence_limit(limit_, delay_.value_at(time), entry.delay.value_at(time));
        if (time - std::max({entry.since, entry.last, resumed_}) <= limit) continue;
        entry.is_silent = true;
        any_silent_.store(true, std::memory_order_relaxed);
    }
}

}  // namespace assay::direct
