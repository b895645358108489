// A reliable stream of bytes over datagrams that may be lost, repeated or reordered. It uses no
// sockets and no clock, so that tests can plant all of these.
//
// Every datagram has a new number, even if it carries the same bytes again. The receiver
// acknowledges ranges of numbers. So a round trip is never measured against the wrong copy, and a
// datagram is known to be lost when later ones have arrived (RFC 9002, section 6). The window is
// reduced on a loss, by CUBIC's factor, and restored if the datagram was only late. Datagrams are
// paced at the window over the round trip, since a short queue cannot hold bursts. The window stops
// growing if the delay shows that a queue is nearly as full as when it last overflowed. The
// receiver grants bytes of the stream: a program that does not consume them blocks the sender.
//
// On a lossless network no queue overflows, and heartbeats wait in the same queues. So the window
// is also reduced if datagrams wait too long: to the peer's share of what all peers of this rank
// receive in a limited time. Then all of them may send to one host at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "core/clock.hpp"
#include "transport/udp/queueing.hpp"
#include "transport/udp/ranges.hpp"

namespace assay::udp {

inline constexpr std::size_t max_ranges = 32;   // of numbers that a receiver keeps
inline constexpr std::size_t max_reported = 6;  // of one acknowledgement, the latest

struct Acknowledgement {
    std::uint64_t granted = 0;  // the sender may send the bytes of the stream before this one
    std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;  // [begin, end), ascending
    // When the highest number arrived, and when this left, by a clock of the receiver; 0: not
    // known.
    Nanoseconds arrival = 0, answered = 0;
    Nanoseconds received = 0;  // when this arrived, by the clock of the sender
};

class Sender {
public:
    struct Datagram {
        std::uint64_t number, offset;
        std::uint32_t length;
    };
    struct Counts {
        std::uint64_t sent = 0, lost = 0, timeouts = 0, spurious = 0;
    };

    // `max_bytes`: of the stream in a datagram; `granted`: bytes that the receiver grants at first.
    Sender(std::size_t max_bytes, std::uint64_t granted);

    // The next datagram to send now, of a stream that has `end` bytes so far.
    std::optional<Datagram> next(Nanoseconds time, std::uint64_t end);
    // The last datagrams that next() returned, from this number on, could not be sent.
    void cancel_from(std::uint64_t number);
    // Returns false, and changes nothing, if the acknowledgement is invalid.
    bool acknowledge(const Acknowledgement& acknowledgement, Nanoseconds time);
    // Marks datagrams as lost after a timeout without acknowledgements.
    void expire(Nanoseconds time, std::uint64_t end);
    // All bytes before this one have arrived.
    std::uint64_t arrived() const;
    void set_max_bytes(std::size_t bytes) { max_bytes_ = bytes; }
    void set_share(std::size_t bytes) { share_ = bytes; }
    // The time at which next() may return a datagram that the pace holds back now; 0: none is held.
    Nanoseconds departure() const { return departure_; }
    // Bytes of one batch: more would fill a short queue of the host.
    std::size_t batch_bytes() const;
    // The bytes before this one have been sent once.
    std::uint64_t sent_until() const { return next_offset_; }

    std::size_t window() const { return window_; }
    std::size_t in_flight() const { return in_flight_; }
    Nanoseconds round_trip() const { return smoothed_rtt_; }
    const QueueingDelay& queueing() const { return queueing_; }
    const Counts& counts() const { return counts_; }

private:
    enum class State : std::uint8_t { in_flight, arrived, lost };
    struct Sent {
        std::uint64_t offset;
        std::uint32_t length;
        State state;
        bool by_reordering;  // marked as lost because later ones had arrived
        Nanoseconds time;
    };
    struct Piece {
        std::uint64_t offset;
        std::uint32_t length;
    };
    Datagram send(std::uint64_t offset, std::uint32_t length, Nanoseconds time);
    std::optional<Piece> next_lost();
    void mark_lost(Sent& sent);
    void find_lost(Nanoseconds time);
    void remove_arrived();
    void update_rtt(Nanoseconds round_trip);
    void on_loss(std::uint64_t number);
    void limit_delay(std::uint64_t largest);
    void reduce_window(double bytes);
    void save_window();
    void restore_window();
    void grow_window(std::size_t acknowledged);
    double pace() const;
    bool may_leave(Nanoseconds time);
    Nanoseconds retransmission_timeout() const;

    std::size_t max_bytes_;
    std::uint64_t granted_, next_offset_ = 0, first_number_ = 0;
    std::deque<Sent> sent_;  // from first_number_ on
    std::deque<Piece> lost_;
    Ranges arrived_;
    std::size_t in_flight_ = 0, datagrams_in_flight_ = 0;  // bytes, datagrams
    std::size_t share_, window_, threshold_, saved_window_ = 0, saved_threshold_ = 0;
    std::uint64_t searched_until_ = 0;  // number up to which lost datagrams are marked
    std::uint64_t largest_arrived_ = 0;
    std::uint64_t reorder_threshold_ = 3,
                  recovery_end_ = 0;  // RFC 9002: kPacketThreshold; end of a recovery
    std::uint64_t round_end_ = 0;     // the number whose arrival ends a round trip
    Nanoseconds smoothed_rtt_ = 0, latest_rtt_ = 0, min_rtt_ = 0, timer_start_ = 0;
    int backoff_ = 0, probes_left_ = 0;
    bool probe_pending_ = false;
    bool window_limited_ = false;  // by the window or its pace, at the last next()
    QueueingDelay queueing_;
    double growth_ = 0;       // of the window, less than a byte
    double pace_credit_ = 0;  // bytes that may leave now
    Nanoseconds pace_time_ = 0, hold_until_ = 0, departure_ = 0;
    Counts counts_;
};

class Receiver {
public:
    // `window`: bytes of the stream that are held at most.
    explicit Receiver(std::size_t window) : window_(window) {}

    // A datagram with bytes of the stream has arrived. Calls take(data, bytes), which returns how
    // many bytes it has consumed, for all bytes that are in order; the rest is held. Returns false,
    // and does nothing, if the number has arrived before or the bytes are beyond the granted ones.
    template <class PassOn>
    bool on_datagram(std::uint64_t number, std::uint64_t offset, const std::byte* data,
                     std::size_t bytes, PassOn pass_on) {
        if (offset > consumed_ + window_ || bytes > consumed_ + window_ - offset ||
            out_of_order_bytes_ > 2 * window_ || !record(number))
            return false;
        if (offset <= consumed_ && offset + bytes > consumed_ && !refused_) {
            const std::size_t skip = consumed_ - offset;
            const std::size_t accepted = pass_on(data + skip, bytes - skip);
            consumed_ += accepted;
            refused_ = accepted < bytes - skip;
        }
        if (offset + bytes > consumed_) store_out_of_order(offset, data, bytes);
        deliver_in_order(pass_on);
        return true;
    }
    // Passes on the held bytes that are in order, when the program can consume more.
    template <class PassOn>
    void resume(PassOn pass_on) {
        refused_ = false;
        deliver_in_order(pass_on);
    }
    bool refused() const { return refused_; }
    std::uint64_t consumed() const { return consumed_; }
    std::size_t held() const { return out_of_order_bytes_; }
    // `clock`: the time by the clock of set_arrival(); 0: not known.
    Acknowledgement acknowledge(Nanoseconds clock = 0);
    // Makes the last acknowledgement due again, which could not be sent.
    void repeat_acknowledgement() { acknowledgement_due_ = acknowledgement_urgent_ = true; }
    // Notes when a number arrived; the next acknowledgement contains that of the highest number.
    void set_arrival(std::uint64_t number, Nanoseconds arrival) {
        if (number < arrival_number_) return;
        arrival_number_ = number;
        arrival_ = arrival;
    }
    // Whether there is something to acknowledge.
    bool acknowledgement_due() const {
        return acknowledgement_due_ || consumed_ >= acknowledged_ + window_ / 4;
    }
    // Whether to acknowledge at once: many datagrams have arrived, or one was lost or repeated, or
    // the sender may soon have no granted bytes to send (RFC 9000, section 13.2.1).
    bool acknowledgement_urgent() const {
        return acknowledgement_urgent_ || unacknowledged_ >= max_unacknowledged ||
               consumed_ >= acknowledged_ + window_ / 4;
    }

private:
    static constexpr std::size_t max_unacknowledged = 16;  // datagrams
    bool record(std::uint64_t number);
    void store_out_of_order(std::uint64_t offset, const std::byte* data, std::size_t bytes);
    template <class PassOn>
    void deliver_in_order(PassOn pass_on) {
        while (!refused_ && !out_of_order_.empty() && out_of_order_.begin()->first <= consumed_) {
            const auto first = out_of_order_.begin();
            const std::uint64_t skip = consumed_ - first->first;
            if (skip < first->second.size()) {
                const std::size_t bytes = first->second.size() - skip;
                const std::size_t accepted = pass_on(first->second.data() + skip, bytes);
                consumed_ += accepted;
                refused_ = accepted < bytes;
                if (refused_) return;
            }
            out_of_order_bytes_ -= first->second.size();
            out_of_order_.erase(first);
        }
    }

    const std::size_t window_;
    std::uint64_t consumed_ = 0, acknowledged_ = 0, lowest_number_ = 0;
    std::map<std::uint64_t, std::vector<std::byte>> out_of_order_;  // by offset
    std::size_t out_of_order_bytes_ = 0;
    Ranges numbers_;
    bool refused_ = false, acknowledgement_due_ = false, acknowledgement_urgent_ = false;
    std::size_t unacknowledged_ = 0;
    std::uint64_t arrival_number_ = 0;
    Nanoseconds arrival_ = 0;
};

}  // namespace assay::udp
