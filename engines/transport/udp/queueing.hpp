// How long datagrams wait in the queues of a network, and how much a rank may have in flight so
// that they do not wait too long.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "core/clock.hpp"

namespace assay::udp {

// Where no queue overflows, a rank whose datagrams wait for `max_queueing` limits what it has in
// flight to what its link carries in `max_in_flight`. Both are less than the 150 ms after which a
// host without heartbeats is silent. With less, links are idle while several hosts send to one.
inline constexpr Nanoseconds max_queueing = 40'000'000, max_in_flight = 60'000'000;

// The least or greatest of the values of the last 10 to 20 s.
template <class Compare>
class Recent {
public:
    void record(std::int64_t value, Nanoseconds time) {
        constexpr Nanoseconds interval = 10'000'000'000;
        if (!interval_begin_ || time - *interval_begin_ >= interval) {
            previous_ = interval_begin_ ? best_ : value;
            best_ = value;
            interval_begin_ = time;
        }
        best_ = std::min(best_, value, Compare{});
    }
    std::int64_t value() const { return std::min(best_, previous_, Compare{}); }

private:
    std::int64_t best_ = 0, previous_ = 0;  // of this interval and of the one before
    std::optional<Nanoseconds> interval_begin_;
};

// The bytes that each peer of a rank may have in flight, so that all of them together are what the
// rank's link carries in a limited time. The link's rate is the highest of the last seconds.
class FairShare {
public:
    // `delivered`: bytes that all peers have received so far; `peers`: how many there are.
    void record(std::uint64_t delivered, std::size_t peers, Nanoseconds time);
    std::size_t bytes() const { return bytes_; }

private:
    Recent<std::greater<>> rate_;  // B/s
    std::uint64_t delivered_ = 0;
    Nanoseconds time_ = 0;
    std::size_t bytes_ = 64U << 10;  // until the rate is known
};

// The time that datagrams spend in queues: how much longer they take than the fastest one. The
// clocks of both sides may differ; only the change of their difference counts (LEDBAT, RFC 6817).
//
// A queue that is never empty looks like a part of the path after 20 s. Round trips show it, since
// they need no second clock: the shortest of all had empty queues. They do not show in which of the
// two directions it is, so each side takes one half for its own.
class QueueingDelay {
public:
    void on_arrival(Nanoseconds sent, Nanoseconds arrived, Nanoseconds time);
    // The acknowledgement of the last datagram of on_arrival().
    void on_answer(Nanoseconds answered, Nanoseconds received, Nanoseconds time);
    // A datagram was lost: the queues are full now.
    void on_loss();
    bool has_overflowed() const;
    // The delay as a share of the delay when the queues last overflowed, from 0 to 1. It is 0 if
    // the latter is unknown, or too short to be distinguished from other delays.
    double fullness() const;
    // Of the last datagram, without queues that are never empty.
    Nanoseconds latest() const { return latest_; }
    // The mean of all datagrams since the last call, with such queues; 0 without any.
    Nanoseconds take_mean();

private:
    Recent<std::less<>> forward_, back_;  // clocks drift, and routes change
    Nanoseconds sent_ = 0, arrived_ = 0, latest_ = 0, overflow_ = 0;
    std::optional<Nanoseconds> round_trip_;  // the shortest of all
    Nanoseconds sum_ = 0, count_ = 0;        // since take_mean()
};

}  // namespace assay::udp
