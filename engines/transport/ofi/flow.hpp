// The flow control of the messages between this rank and one peer, and their reordering.
//
// A provider may complete messages in another order than they were sent (small ones overtake a
// large one), so they are put in order here. The receiver acknowledges the number of messages that
// it has consumed. A sender is at most `depth` messages ahead of that: a receiver that consumes
// none blocks it, and every message finds a buffer. Where acknowledgements take long, as those
// messages share a slow link with others, messages are shorter: what is asked for on that link
// waits behind them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "core/clock.hpp"

namespace assay::ofi {

class Flow {
public:
    static constexpr std::uint64_t depth = 4;

    Flow() { arrived_.fill(none); }

    // --- Sending
    bool may_send() const { return sent_ - consumed_by_peer_ < depth; }
    std::uint64_t next() const { return sent_; }  // the number of the next message
    void sent(Nanoseconds time) { sent_at_[sent_++ % depth] = time; }
    // The bytes of the next message, of at most `largest`.
    std::size_t message_bytes(std::size_t largest) const {
        return std::max(largest >> halvings_, std::min(largest, shortest));
    }
    bool all_acknowledged() const { return sent_ == consumed_by_peer_; }
    // The peer acknowledges that it has consumed this number of messages. Returns false if that is
    // more than were sent.
    bool on_acknowledged(std::uint64_t consumed_count, Nanoseconds time) {
        if (consumed_count > sent_) return false;
        if (consumed_count > consumed_by_peer_) {
            consumed_by_peer_ = consumed_count;
            const Nanoseconds delay = time - sent_at_[(consumed_count - 1) % depth];
            least_delay_ = std::min(least_delay_, delay);
            adapt_length(delay);
        }
        return true;
    }

    // --- Receiving
    static constexpr int none = -1;
    // A message has arrived in a buffer. Returns false if it is a repetition, or beyond `depth`.
    bool arrived(std::uint64_t number, int buffer) {
        if (number < consumed_ || number - consumed_ >= depth) return false;
        int& entry = arrived_[number % depth];
        if (entry != none) return false;
        entry = buffer;
        return true;
    }
    // The buffer of the next message in order; none if it has not arrived.
    int front() const { return arrived_[consumed_ % depth]; }
    void consume(Nanoseconds time) {
        arrived_[consumed_ % depth] = none;
        if (consumed_++ == acknowledged_) unacknowledged_since_ = time;
    }
    std::uint64_t consumed() const { return consumed_; }
    // Removes all messages that wait here, and calls release(buffer) for each.
    template <class Release>
    void clear(Release release) {
        for (int& entry : arrived_)
            if (entry != none) release(std::exchange(entry, none));
    }
    // Whether to send a message for the acknowledgement alone: `depth` / 2 messages, or one older
    // than the largest delay, are not acknowledged.
    bool acknowledgement_due(Nanoseconds time) const {
        return consumed_ - acknowledged_ >= depth / 2 ||
               (consumed_ > acknowledged_ &&
                time - unacknowledged_since_ >= max_acknowledgement_delay);
    }
    void acknowledged() { acknowledged_ = consumed_; }

    // A message usually carries the acknowledgement before this time is over.
    static constexpr Nanoseconds max_acknowledgement_delay = 1'000'000;

    // Messages become shorter where an acknowledgement takes longer than `slow` and than `waiting`
    // times the least, which is that of the way alone; and longer where it is faster than `fast`.
    static constexpr Nanoseconds slow = 100'000'000, fast = 25'000'000;
    static constexpr Nanoseconds waiting = 4;
    static constexpr unsigned max_halvings = 3;
    static constexpr std::size_t shortest = 16U << 10;

private:
    // Once for the messages of one length: those in flight say nothing about the next length.
    void adapt_length(Nanoseconds delay) {
        if (consumed_by_peer_ <= length_since_) return;
        const bool waits = delay > slow && delay / waiting > least_delay_;
        if (waits && halvings_ < max_halvings) ++halvings_;
        else if (delay < fast && halvings_ > 0) --halvings_;
        else return;
        length_since_ = sent_;
    }

    std::uint64_t sent_ = 0, consumed_by_peer_ = 0;
    std::array<Nanoseconds, depth> sent_at_{};  // by number modulo depth
    Nanoseconds least_delay_ = std::numeric_limits<Nanoseconds>::max();
    unsigned halvings_ = 0;
    std::uint64_t length_since_ = 0;  // the number of messages that were sent with other lengths
    std::uint64_t consumed_ = 0, acknowledged_ = 0;
    Nanoseconds unacknowledged_since_ = 0;
    std::array<int, depth> arrived_;  // by number modulo depth
};

}  // namespace assay::ofi
