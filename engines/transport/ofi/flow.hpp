// The messages between this rank and one peer: their numbers, how many may be on their way, and the
// order in which those that arrived are taken.
//
// A provider may complete messages in another order than they were sent (a large one is fetched
// while small ones pass), so they wait here for their turn. The receiver tells how many it has
// taken. A sender is at most `depth` messages ahead of that, so it is held back by a receiver that
// takes none, and every message finds a buffer.
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
    bool all_taken() const { return sent_ == taken_by_peer_; }
    // The peer has taken so many messages. False: more than were sent.
    bool heard(std::uint64_t taken) {
        if (taken > sent_) return false;
        taken_by_peer_ = std::max(taken_by_peer_, taken);
        return true;
    }

    // --- Receiving
    static constexpr int none = -1;
    // A message lies in a buffer. False: it came before, or is further ahead than the peer may be.
    bool arrived(std::uint64_t number, int buffer) {
        if (number < taken_ || number - taken_ >= depth) return false;
        int& place = arrived_[number % depth];
        if (place != none) return false;
        place = buffer;
        return true;
    }
    // The buffer of the message whose turn it is; none if it has not arrived.
    int front() const { return arrived_[taken_ % depth]; }
    void take(Nanoseconds time) {
        arrived_[taken_ % depth] = none;
        if (taken_++ == told_) owed_since_ = time;
    }
    std::uint64_t taken() const { return taken_; }
    // Calls release(buffer) for each that waits here, and forgets it.
    template <class Release>
    void clear(Release release) {
        for (int& place : arrived_)
            if (place != none) release(std::exchange(place, none));
    }
    // Whether the peer must be told without a message to carry it: half of what it may send is
    // taken, or something was taken a while ago.
    bool owes(Nanoseconds time) const {
        return taken_ - told_ >= depth / 2 || (taken_ > told_ && time - owed_since_ >= patience);
    }
    void told() { told_ = taken_; }

    static constexpr Nanoseconds patience = 1'000'000;  // an answer usually comes before

private:
    std::uint64_t sent_ = 0, taken_by_peer_ = 0;
    std::uint64_t taken_ = 0, told_ = 0;
    Nanoseconds owed_since_ = 0;
    std::array<int, depth> arrived_;  // by number modulo depth
};

}  // namespace assay::ofi
