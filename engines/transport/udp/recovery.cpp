// The sender and the receiver of a stream over datagrams (see recovery.hpp).
#include "transport/udp/recovery.hpp"

#include <algorithm>

namespace assay::udp {
namespace {

// The first and the smallest window in datagrams. Many peers that send to the same rank share its
// queue, so both are small (RFC 9002, section 7.2).
constexpr std::size_t first_window = 10, min_window = 4;
constexpr std::size_t max_window = 64U << 20;
constexpr std::uint64_t max_reorder = 1024;
constexpr std::size_t max_lost_entries = 4096;  // lost datagrams that may still arrive late
constexpr std::size_t growth_divisor = 32;      // growth in a round trip: 3 %
constexpr double reduction = 0.7;  // as CUBIC (RFC 9438): Reno's half leaves short queues empty
// The minimum is long because a program that computes between two polls acknowledges late.
constexpr Nanoseconds min_timeout = 10'000'000, initial_timeout = 50'000'000,
                      max_timeout = 500'000'000;
constexpr Nanoseconds granularity = 1'000'000;  // RFC 9002, section 6.1.2
constexpr int probes = 2;                       // datagrams that are sent again after a timeout
constexpr int timeouts_until_restart = 3;       // in a row, before the window is reset

}  // namespace

Sender::Sender(std::size_t max_bytes, std::uint64_t granted)
    : max_bytes_(max_bytes),
      granted_(granted),
      window_(first_window * max_bytes),
      threshold_(max_window) {}

Sender::Datagram Sender::send(std::uint64_t offset, std::uint32_t length, Nanoseconds time) {
    if (in_flight_ == 0) timer_start_ = time;
    sent_.push_back({offset, length, State::in_flight, false, time});
    in_flight_ += length;
    ++datagrams_in_flight_;
    ++counts_.sent;
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
    window_limited_ = in_flight_ > 0 && in_flight_ + max_bytes_ > window_;
    if (window_limited_ && probes_left_ == 0) return std::nullopt;
    if (const auto piece = next_lost()) {
        if (window_limited_) --probes_left_;
        return send(piece->offset, piece->length, time);
    }
    if (window_limited_) return std::nullopt;
    const std::uint64_t limit = std::min(end, granted_);
    if (next_offset_ >= limit) return std::nullopt;
    const auto length =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(max_bytes_, limit - next_offset_));
    // Sends no small datagram only because the receiver has granted few bytes.
    if (length < max_bytes_ && end > granted_ && in_flight_ > 0) return std::nullopt;
    next_offset_ += length;
    return send(next_offset_ - length, length, time);
}

void Sender::cancel_from(std::uint64_t number) {
    while (first_number_ + sent_.size() > number) {
        const Sent& last = sent_.back();
        in_flight_ -= last.length;
        --datagrams_in_flight_;
        --counts_.sent;
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
                if (number == largest) update_rtt(time - sent.time);
            }
            sent.state = State::arrived;
            arrived_.add(sent.offset, sent.offset + sent.length);
            timer_start_ = time;
            backoff_ = probes_left_ = 0;
        }
    }
    // The window grows only if it limits the sender (RFC 9002, section 7.8). The growth is the
    // larger one of Reno's and Scalable TCP's: a user-space receiver that shares its processor
    // answers late, and Reno's datagram in a round trip is then too little.
    if (window_limited_ && newly_acknowledged > 0) {
        const std::size_t reno =
            std::max<std::size_t>(1, max_bytes_ * newly_acknowledged / window_);
        window_ = std::min(
            max_window,
            window_ + (window_ < threshold_ ? newly_acknowledged
                                            : std::max(reno, newly_acknowledged / growth_divisor)));
    }
    largest_arrived_ = std::max(largest_arrived_, largest);
    find_lost(time);
    remove_arrived();
    return true;
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
        reduce_window(searched_until_);
    }
}

// Reduces the window, once for all losses of one round trip.
void Sender::reduce_window(std::uint64_t number) {
    if (number < recovery_end_) return;
    recovery_end_ = first_number_ + sent_.size();
    save_window();
    window_ = std::max(min_window * max_bytes_,
                       static_cast<std::size_t>(static_cast<double>(window_) * reduction));
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

Acknowledgement Receiver::acknowledge() {
    Acknowledgement acknowledgement;
    acknowledgement.granted = consumed_ + window_;
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
