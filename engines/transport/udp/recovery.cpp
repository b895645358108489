// The sender and the receiver of a stream over datagrams (see recovery.hpp).
#include "transport/udp/recovery.hpp"

#include <algorithm>
#include <utility>

namespace assay::udp {
namespace {

// The first and the smallest window in datagrams. Many peers that send to the same rank share its
// queue, so both are small (RFC 9002, section 7.2).
constexpr std::size_t first_window = 10, min_window = 2;
constexpr std::size_t max_window = 64U << 20;
constexpr std::uint64_t max_reorder = 1024;
constexpr std::size_t max_lost_entries = 4096;  // lost datagrams that may still arrive late
constexpr double growth_divisor = 32;           // growth in a round trip: 3 %
constexpr double reduction = 0.7;  // as CUBIC (RFC 9438): Reno's half leaves short queues empty
// The minimum is long because a program that computes between two polls acknowledges late.
constexpr Nanoseconds min_timeout = 10'000'000, initial_timeout = 50'000'000,
                      max_timeout = 500'000'000;
constexpr Nanoseconds granularity = 1'000'000;  // RFC 9002, section 6.1.2
constexpr int probes = 2;                       // datagrams that are sent again after a timeout
constexpr int timeouts_until_restart = 3;       // in a row, before the window is reset
// The pace is this factor above the window over the round trip, so that the window is the limit. It
// is BBR's factor; while the window doubles in a round trip, the pace must double too.
constexpr double pacing_gain = 1.25, first_pacing_gain = 2;
// The burst that may leave after a pause: a program that shares its processor is called late.
constexpr double burst_s = 4e-3;
constexpr std::size_t burst_datagrams = 2;
constexpr Nanoseconds max_hold = 500'000;
// A batch holds the bytes of this time, and at least some Ethernet packets. A token bucket holds as
// much: a lab's holds 0.5 ms, and TCP in Linux sends segments of 1 ms (tcp_tso_autosize).
constexpr double batch_s = 0.3e-3;
constexpr std::size_t min_batch = 7500, max_batch = 65000;
// Shares of a queue's delay at its overflow. The window grows less above the first, and no more
// above the second.
constexpr double grow_less = 0.5, grow_no_more = 0.85;
// The window limits the rate if the queues are nearly empty. It then grows by up to a quarter in a
// round trip, which is long if a busy rank answers late.
constexpr double nearly_empty = 0.3, fast_growth = 0.25;

}  // namespace

Sender::Sender(std::size_t max_bytes, std::uint64_t granted)
    : max_bytes_(max_bytes),
      granted_(granted),
      share_(max_window),
      window_(first_window * max_bytes),
      threshold_(max_window) {}

Sender::Datagram Sender::send(std::uint64_t offset, std::uint32_t length, Nanoseconds time) {
    if (in_flight_ == 0) timer_start_ = time;
    sent_.push_back({offset, length, State::in_flight, false, time});
    in_flight_ += length;
    ++datagrams_in_flight_;
    ++counts_.sent;
    pace_credit_ -= length;
    return {first_number_ + sent_.size() - 1, offset, length};
}

// The next lost piece of the stream that has not arrived since, at most a datagram long.
std::optional<Sender::Piece> Sender::next_lost() {
    while (!lost_.empty()) {
        Piece& piece = lost_.front();
        if (piece.length > 0 && arrived_.contains(piece.offset, piece.offset + piece.length)) {
            lost_.pop_front();
            continue;
        }
        const Piece part{piece.offset, static_cast<std::uint32_t>(
                                           std::min<std::size_t>(piece.length, max_bytes_))};
        piece.offset += part.length;
        piece.length -= part.length;
        if (piece.length == 0) lost_.pop_front();
        return part;
    }
    return std::nullopt;
}

std::optional<Sender::Datagram> Sender::next(Nanoseconds time, std::uint64_t end) {
    if (probe_pending_) {
        probe_pending_ = false;
        return send(next_offset_, 0, time);
    }
    departure_ = 0;
    const bool full = in_flight_ > 0 && in_flight_ + max_bytes_ > window_;
    window_limited_ = full;
    if (full && probes_left_ == 0) return std::nullopt;
    if ((!lost_.empty() || next_offset_ < std::min(end, granted_)) && !may_leave(time)) {
        window_limited_ = true;
        return std::nullopt;
    }
    if (const auto piece = next_lost()) {
        if (full) --probes_left_;
        return send(piece->offset, piece->length, time);
    }
    if (full) return std::nullopt;
    const std::uint64_t limit = std::min(end, granted_);
    if (next_offset_ >= limit) return std::nullopt;
    const auto length =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(max_bytes_, limit - next_offset_));
    // Sends no small datagram only because the receiver has granted few bytes.
    if (length < max_bytes_ && end > granted_ && in_flight_ > 0) return std::nullopt;
    next_offset_ += length;
    return send(next_offset_ - length, length, time);
}

// The pace in B/s; 0, which is no limit, before the first round trip.
double Sender::pace() const {
    if (smoothed_rtt_ == 0) return 0;
    const double gain = window_ < threshold_ ? first_pacing_gain : pacing_gain;
    return gain * static_cast<double>(window_) / seconds(smoothed_rtt_);
}

// Whether a datagram may leave now: as long as there is credit. Without credit the next ones wait
// until it is positive again, and a moment longer, so that several leave at once.
bool Sender::may_leave(Nanoseconds time) {
    const double rate = pace();
    if (rate == 0) return true;
    if (time < hold_until_) {
        departure_ = hold_until_;
        return false;
    }
    const double burst =
        std::max(rate * burst_s, static_cast<double>(burst_datagrams * max_bytes_));
    pace_credit_ = std::min(burst, pace_credit_ + rate * seconds(time - pace_time_));
    pace_time_ = time;
    if (pace_credit_ > 0) return true;
    const auto debt = static_cast<Nanoseconds>(-pace_credit_ / rate * 1e9);
    departure_ = hold_until_ = time + std::max(debt + 1, std::min(max_hold, smoothed_rtt_ / 8));
    return false;
}

std::size_t Sender::batch_bytes() const {
    const double rate = pace();
    if (rate == 0) return min_batch;
    return std::clamp(static_cast<std::size_t>(rate * batch_s), min_batch, max_batch);
}

void Sender::cancel_from(std::uint64_t number) {
    while (first_number_ + sent_.size() > number) {
        const Sent& last = sent_.back();
        in_flight_ -= last.length;
        --datagrams_in_flight_;
        --counts_.sent;
        pace_credit_ += last.length;
        window_limited_ = false;  // the host's queue is what limits
        if (last.offset + last.length == next_offset_ && lost_.empty()) next_offset_ = last.offset;
        else if (last.length > 0) lost_.push_front({last.offset, last.length});
        sent_.pop_back();
    }
}

void Sender::mark_lost(Sent& sent) {
    sent.state = State::lost;
    in_flight_ -= sent.length;
    --datagrams_in_flight_;
    ++counts_.lost;
    if (sent.length > 0) lost_.push_back({sent.offset, sent.length});
}

bool Sender::acknowledge(const Acknowledgement& acknowledgement, Nanoseconds time) {
    const std::uint64_t next_number = first_number_ + sent_.size();
    std::uint64_t previous = 0;
    for (const auto& [begin, end] : acknowledgement.ranges) {
        if (begin >= end || begin < previous || end > next_number) return false;
        previous = end;
    }
    granted_ = std::max(granted_, acknowledgement.granted);
    if (acknowledgement.ranges.empty()) return true;
    const std::uint64_t largest = acknowledgement.ranges.back().second - 1;
    std::size_t newly_acknowledged = 0;
    for (const auto& [begin, end] : acknowledgement.ranges) {
        for (std::uint64_t number = std::max(begin, first_number_); number < end; ++number) {
            Sent& sent = sent_[number - first_number_];
            if (sent.state == State::arrived) continue;
            if (sent.state == State::lost) {
                ++counts_.spurious;
                if (sent.by_reordering)
                    reorder_threshold_ = std::min(2 * reorder_threshold_, max_reorder);
                restore_window();
            } else {
                in_flight_ -= sent.length;
                --datagrams_in_flight_;
                newly_acknowledged += sent.length;
                if (number == largest) {
                    update_rtt(time - sent.time);
                    if (acknowledgement.arrival != 0) {
                        queueing_.on_arrival(sent.time, acknowledgement.arrival, time);
                        queueing_.on_answer(acknowledgement.answered, acknowledgement.received,
                                            time);
                    }
                }
            }
            sent.state = State::arrived;
            arrived_.add(sent.offset, sent.offset + sent.length);
            timer_start_ = time;
            backoff_ = probes_left_ = 0;
        }
    }
    if (window_limited_ && newly_acknowledged > 0) grow_window(newly_acknowledged);
    largest_arrived_ = std::max(largest_arrived_, largest);
    limit_delay(largest);
    find_lost(time);
    remove_arrived();
    return true;
}

// Grows the window, which happens only if it limits the sender (RFC 9002, section 7.8). The growth
// is the larger one of Reno's and Scalable TCP's: a user-space receiver that shares its processor
// answers late, and Reno's datagram in a round trip is then too little. The growth is less if a
// queue is about to overflow, as with TCP-Illinois.
void Sender::grow_window(std::size_t acknowledged) {
    if (window_ < threshold_) {
        window_ = std::min(max_window, window_ + acknowledged);
        return;
    }
    const double reno = static_cast<double>(max_bytes_) * static_cast<double>(acknowledged) /
                        static_cast<double>(window_);
    const double scalable = static_cast<double>(acknowledged) / growth_divisor;
    const double fullness = queueing_.fullness();
    const double room = (grow_no_more - fullness) / (grow_no_more - grow_less);
    const double fast =
        queueing_.has_overflowed()
            ? fast_growth * static_cast<double>(acknowledged) * (1 - fullness / nearly_empty)
            : 0;
    growth_ += std::max(fast, std::max(reno, scalable) * std::clamp(room, 0.0, 1.0));
    const auto whole = static_cast<std::size_t>(growth_);
    growth_ -= static_cast<double>(whole);
    window_ = std::min(max_window, window_ + whole);
}

// Marks datagrams as lost that were sent before one that has arrived: `reorder_threshold_` numbers
// before it, or longer ago than a round trip and an eighth (RFC 9002, section 6.1). The number
// alone is not enough: on paths that reorder datagrams the threshold soon exceeds the window.
void Sender::find_lost(Nanoseconds time) {
    const Nanoseconds limit = std::max(granularity, 9 * std::max(smoothed_rtt_, latest_rtt_) / 8);
    for (searched_until_ = std::max(searched_until_, first_number_);
         searched_until_ < std::min(largest_arrived_, first_number_ + sent_.size());
         ++searched_until_) {
        Sent& sent = sent_[searched_until_ - first_number_];
        if (sent.state != State::in_flight) continue;
        if (searched_until_ + reorder_threshold_ > largest_arrived_ && time - sent.time < limit)
            return;
        sent.by_reordering = true;
        mark_lost(sent);
        on_loss(searched_until_);
    }
}

// Reduces the window, once for all losses of one round trip.
void Sender::on_loss(std::uint64_t number) {
    if (number < recovery_end_) return;
    recovery_end_ = first_number_ + sent_.size();
    queueing_.on_loss();
    save_window();
    reduce_window(reduction * static_cast<double>(window_));
}

// Limits the window once in a round trip if its datagrams waited too long. Where queues overflow,
// other programs may fill them: a sender that heeds delay alone would starve.
void Sender::limit_delay(std::uint64_t largest) {
    if (largest < round_end_) return;
    round_end_ = first_number_ + sent_.size();
    const Nanoseconds mean = queueing_.take_mean();
    if (mean <= max_queueing || queueing_.has_overflowed()) return;
    double limit = static_cast<double>(share_);
    // The link of the other host may be slower than that of this one.
    if (mean > 2 * max_queueing) limit = std::min(limit, reduction * static_cast<double>(window_));
    if (static_cast<double>(window_) <= limit) return;
    reduce_window(limit);
    save_window();  // no late datagram restores a longer queue
}

void Sender::reduce_window(double bytes) {
    window_ = std::max(min_window * max_bytes_, static_cast<std::size_t>(bytes));
    threshold_ = window_;
}

// Saves the window before it is reduced.
void Sender::save_window() {
    saved_window_ = window_;
    saved_threshold_ = threshold_;
}

// Undoes the reduction after a lost datagram has arrived late (like Eifel, RFC 4015).
void Sender::restore_window() {
    window_ = std::max(window_, saved_window_);
    threshold_ = std::max(threshold_, saved_threshold_);
}

// Removes the oldest entries that have arrived. Lost ones stay for a while, as they may be late.
void Sender::remove_arrived() {
    while (!sent_.empty() &&
           (sent_.front().state == State::arrived ||
            (sent_.front().state == State::lost && sent_.size() > max_lost_entries))) {
        sent_.pop_front();
        ++first_number_;
    }
}

void Sender::update_rtt(Nanoseconds round_trip) {
    latest_rtt_ = round_trip;
    min_rtt_ = smoothed_rtt_ == 0 ? round_trip : std::min(min_rtt_, round_trip);
    smoothed_rtt_ =
        smoothed_rtt_ == 0 ? round_trip : (7 * smoothed_rtt_ + round_trip) / 8;  // RFC 9002, 5.3
}

Nanoseconds Sender::retransmission_timeout() const {
    const Nanoseconds base = smoothed_rtt_ == 0
                                 ? initial_timeout
                                 : std::max({min_timeout, 4 * min_rtt_, 2 * smoothed_rtt_});
    return std::min(max_timeout, base << std::min(backoff_, 10));
}

void Sender::expire(Nanoseconds time, std::uint64_t end) {
    // Nothing is in flight, and the receiver may have granted more in an acknowledgement that was
    // lost.
    const bool blocked = in_flight_ == 0 && next_offset_ >= granted_ && next_offset_ < end;
    const bool waits = datagrams_in_flight_ > 0;
    if (!waits && !blocked) {
        timer_start_ = time;
        return;
    }
    find_lost(time);
    if (time - timer_start_ < retransmission_timeout()) return;
    timer_start_ = time;
    ++backoff_;
    ++counts_.timeouts;
    if (blocked) probe_pending_ = true;
    // Probes may exceed the window (RFC 9002, section 7.5). Else, with a window below the bytes in
    // flight, data would only be sent after timeouts.
    probes_left_ = probes;
    int probes_to_send = probes;
    for (Sent& sent : sent_) {
        if (sent.state != State::in_flight) continue;
        mark_lost(sent);
        if (--probes_to_send == 0) break;
    }
    if (backoff_ == timeouts_until_restart) {
        save_window();
        threshold_ = std::max(window_ / 2, min_window * max_bytes_);
        window_ = min_window * max_bytes_;
    }
    remove_arrived();
}

std::uint64_t Sender::arrived() const {
    return arrived_.contains(0, 1) ? arrived_.ranges().begin()->second : 0;
}

bool Receiver::record(std::uint64_t number) {
    ++unacknowledged_;
    const std::uint64_t expected = numbers_.count() == 0 ? 0 : numbers_.ranges().rbegin()->second;
    if (number < lowest_number_ || numbers_.add(number, number + 1) == 0) {
        acknowledgement_due_ = acknowledgement_urgent_ = true;  // its acknowledgement may be lost
        return false;
    }
    if (number != expected) acknowledgement_urgent_ = true;
    while (numbers_.count() > max_ranges) {
        lowest_number_ = numbers_.ranges().begin()->second;
        numbers_.remove_lowest();
    }
    acknowledgement_due_ = true;
    return true;
}

void Receiver::store_out_of_order(std::uint64_t offset, const std::byte* data, std::size_t bytes) {
    const std::size_t skip = offset < consumed_ ? consumed_ - offset : 0;
    offset += skip;
    std::vector<std::byte>& entry = out_of_order_[offset];
    if (entry.size() >= bytes - skip) return;
    out_of_order_bytes_ += bytes - skip - entry.size();
    entry.assign(data + skip, data + bytes);
}

Acknowledgement Receiver::acknowledge(Nanoseconds clock) {
    Acknowledgement acknowledgement;
    acknowledgement.granted = consumed_ + window_;
    acknowledgement.arrival = arrival_;
    acknowledgement.answered = clock;
    const std::size_t older = numbers_.count() - std::min(numbers_.count(), max_reported);
    acknowledgement.ranges.assign(
        std::next(numbers_.ranges().begin(), static_cast<std::ptrdiff_t>(older)),
        numbers_.ranges().end());
    acknowledgement_due_ = acknowledgement_urgent_ = false;
    unacknowledged_ = 0;
    acknowledged_ = consumed_;
    return acknowledgement;
}

}  // namespace assay::udp
