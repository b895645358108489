// The flow control of the messages between this rank and one peer, and their reordering.
//
// A provider may complete messages in another order than they were sent (small ones overtake a
// large one), so they are put in order here. The receiver acknowledges the number of messages that
// it has consumed. A sender is at most a window ahead of that: a receiver that consumes none blocks
// it, and every message finds a buffer.
//
// On a slow link messages are short, and few of them are given to the provider at once: requests
// and acknowledgements wait behind those. The window has as many bytes as with long messages. A
// smaller one would hold back the flows whose acknowledgements come over a busy link, and soon all
// ranks would wait for the fragments of one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/clock.hpp"

namespace assay::ofi {

class Flow {
public:
    static constexpr unsigned most_halvings = 3;
    static constexpr std::uint64_t long_window = 4;  // messages that are not shortened
    static constexpr std::uint64_t most_submitted = 4;

    // Messages are shortened to at least 1 / 2^halvings of the largest.
    explicit Flow(unsigned halvings) : max_halvings_(halvings), halvings_(halvings) {
        arrived_.fill(none);
    }
    // The messages of the largest window.
    static constexpr std::uint64_t depth(unsigned halvings) { return long_window << halvings; }
    std::uint64_t depth() const { return depth(max_halvings_); }

    // --- Sending
    bool may_send() const { return sent_ - consumed_by_peer_ < long_window << halvings_; }
    std::uint64_t next() const { return sent_; }  // the number of the next message
    void sent(Nanoseconds time) { sent_at_[sent_++ % most_depth] = time; }
    // The bytes of the next message, of at most `largest`.
    std::size_t message_bytes(std::size_t largest) const { return largest >> halvings_; }
    // How many messages the provider may have at once. A provider whose sends complete with the
    // answer of the far end is held to 64 KiB for a round trip while messages are short.
    std::uint64_t submitted() const { return halvings_ > 0 ? 2 : most_submitted; }
    bool all_acknowledged() const { return sent_ == consumed_by_peer_; }
    // The peer acknowledges that it has consumed this number of messages. Returns false if that is
    // more than were sent.
    bool on_acknowledged(std::uint64_t consumed_count, Nanoseconds time) {
        if (consumed_count > sent_) return false;
        if (consumed_count > consumed_by_peer_) {
            consumed_by_peer_ = consumed_count;
            adapt_length(time - sent_at_[(consumed_count - 1) % most_depth]);
        }
        return true;
    }

    // --- Receiving
    static constexpr int none = -1;
    // A message has arrived in a buffer. Returns false if it is a repetition, or beyond depth().
    bool arrived(std::uint64_t number, int buffer) {
        if (number < consumed_ || number - consumed_ >= depth()) return false;
        int& entry = arrived_[number % most_depth];
        if (entry != none) return false;
        entry = buffer;
        return true;
    }
    // The buffer of the next message in order; none if it has not arrived.
    int front() const { return arrived_[consumed_ % most_depth]; }
    void consume(Nanoseconds time) {
        arrived_[consumed_ % most_depth] = none;
        if (consumed_++ == acknowledged_) unacknowledged_since_ = time;
    }
    std::uint64_t consumed() const { return consumed_; }
    // Removes all messages that wait here, and calls release(buffer) for each.
    template <class Release>
    void clear(Release release) {
        for (int& entry : arrived_)
            if (entry != none) release(std::exchange(entry, none));
    }
    // Whether to send a message for the acknowledgement alone: half of a window of long messages,
    // or one older than the largest delay, are not acknowledged.
    bool acknowledgement_due(Nanoseconds time) const {
        return consumed_ - acknowledged_ >= long_window / 2 ||
               (consumed_ > acknowledged_ &&
                time - unacknowledged_since_ >= max_acknowledgement_delay);
    }
    void acknowledged() { acknowledged_ = consumed_; }

    // A message usually carries the acknowledgement before this time is over.
    static constexpr Nanoseconds max_acknowledgement_delay = 1'000'000;

    // Messages are short at first. They become longer where an acknowledgement is faster than
    // `fast`, and shorter where it takes longer than `slow`.
    static constexpr Nanoseconds slow = 10'000'000, fast = 2'000'000;

private:
    // Once for the messages of one length: those in flight say nothing about the next length.
    void adapt_length(Nanoseconds delay) {
        if (consumed_by_peer_ <= length_since_) return;
        if (delay > slow && halvings_ < max_halvings_) ++halvings_;
        else if (delay < fast && halvings_ > 0) --halvings_;
        else return;
        length_since_ = sent_;
    }

    static constexpr std::uint64_t most_depth = long_window << most_halvings;

    std::uint64_t sent_ = 0, consumed_by_peer_ = 0;
    std::array<Nanoseconds, most_depth> sent_at_{};  // by number modulo most_depth
    const unsigned max_halvings_;
    unsigned halvings_;
    std::uint64_t length_since_ = 0;  // the number of messages that were sent with other lengths
    std::uint64_t consumed_ = 0, acknowledged_ = 0;
    Nanoseconds unacknowledged_since_ = 0;
    std::array<int, most_depth> arrived_;  // by number modulo most_depth
};

}  // namespace assay::ofi
