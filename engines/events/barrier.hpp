// A barrier of many ranks by messages between them: the dissemination barrier (Hensgen, Finkel and
// Manber 1988). In round r each rank notifies the rank 2^r positions after it; after ceil(log2 n)
// rounds every rank knows that all have entered.
//
// Its state belongs to one epoch of the membership and is reset when the next one begins.
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "events/messages.hpp"

namespace assay::events {

class Barrier {
public:
    struct Outgoing {
        int peer;
        BarrierMessage message;
    };
    explicit Barrier(int rank) : rank_(rank) {}

    // `ranks` are the members of the epoch, ascending; this rank is one of them.
    void begin(Epoch epoch, std::vector<int> ranks);
    // This rank enters the next barrier. It may enter several before the first one is passed.
    void enter() {
        ++entered_;
        advance();
    }
    void on_message(int peer, const BarrierMessage& message);
    std::uint64_t passed() const { return passed_; }  // barriers passed in this epoch
    // Takes the messages that are to be sent.
    std::vector<Outgoing> take_outgoing() { return std::exchange(outgoing_, {}); }

private:
    // The member `distance` positions after, or before, this rank; the list is circular.
    int rank_after(std::size_t distance) const;
    int rank_before(std::size_t distance) const;
    void advance();

    int rank_;
    Epoch epoch_ = 0;
    std::vector<int> ranks_;
    std::size_t own_index_ = 0;  // of this rank in ranks_
    std::uint64_t entered_ = 0, passed_ = 0;
    std::uint32_t round_ = 0;
    bool sent_ = false;  // whether the message of the current round is sent
    // The barrier number and round of each received message.
    std::set<std::pair<std::uint64_t, std::uint32_t>> received_;
    std::vector<std::pair<int, BarrierMessage>> early_;  // of a later epoch
    std::vector<Outgoing> outgoing_;
};

}  // namespace assay::events
