// The flow control of the messages between this rank and one peer, and their reordering.
//
// A provider may complete messages in another order than they were sent (a large one is fetched
// while small ones pass), so they wait here for their turn. The receiver acknowledges how many it
// has taken. A sender is at most `depth` messages ahead of that: a receiver that takes none blocks
// it, and every message finds a buffer.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "core/clock.hpp"

namespace assay::ofi {

class Flow {
public:
    static constexpr std::uint64_t depth = 4;

    Flow() { arrived_.fill(none); }

    // --- Sending
    bool may_send() const { return sent_ - taken_by_peer_ < depth; }
    std::uint64_t next() const { return sent_; }  // the number of the next message
    void sent() { ++sent_; }
    bool all_acknowledged() const { return sent_ == taken_by_peer_; }
    // The peer acknowledges that it has taken so many messages. False: more than were sent.
    bool on_acknowledged(std::uint64_t taken) {
        if (taken > sent_) return false;
        taken_by_peer_ = std::max(taken_by_peer_, taken);
        return true;
    }

    // --- Receiving
    static constexpr int none = -1;
    // A message has arrived in a buffer. False: it is a repetition, or beyond `depth`.
    bool arrived(std::uint64_t number, int buffer) {
        if (number < taken_ || number - taken_ >= depth) return false;
        int& entry = arrived_[number % depth];
        if (entry != none) return false;
        entry = buffer;
        return true;
    }
    // The buffer of the message whose turn it is; none if it has not arrived.
    int front() const { return arrived_[taken_ % depth]; }
    void take(Nanoseconds time) {
        arrived_[taken_ % depth] = none;
        if (taken_++ == acknowledged_) unacknowledged_since_ = time;
    }
    std::uint64_t taken() const { return taken_; }
    // Calls release(buffer) for each that waits here, and forgets it.
    template <class Release>
    void clear(Release release) {
        for (int& entry : arrived_)
            if (entry != none) release(std::exchange(entry, none));
    }
    // Whether to send an acknowledgement of its own, without a message that carries it: `depth` / 2
    // messages, or one older than the largest delay, are not acknowledged.
    bool acknowledgement_due(Nanoseconds time) const {
        return taken_ - acknowledged_ >= depth / 2 ||
               (taken_ > acknowledged_ &&
                time - unacknowledged_since_ >= max_acknowledgement_delay);
    }
    void acknowledged() { acknowledged_ = taken_; }

    static constexpr Nanoseconds max_acknowledgement_delay =
        1'000'000;  // a message usually carries it before

private:
    std::uint64_t sent_ = 0, taken_by_peer_ = 0;
    std::uint64_t taken_ = 0, acknowledged_ = 0;
    Nanoseconds unacknowledged_since_ = 0;
    std::array<int, depth> arrived_;  // by number modulo depth
};

}  // namespace assay::ofi
