// A barrier of many ranks by messages between them: the dissemination barrier (Hensgen, Finkel and
// Manber 1988). In round r each rank notifies the rank 2^r positions after it; after ceil(log2 n)
// rounds every rank knows that all have entered.
//
// It belongs to an epoch. A new epoch forgets all barriers of the one before.
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
        BarrierNote note;
    };
    explicit Barrier(int rank) : rank_(rank) {}

    // `ranks` are the members of the epoch, ascending, and have this rank.
    void begin(Epoch epoch, std::vector<int> ranks);
    // This rank has come to the next barrier. Barriers are entered one after the other, also before
    // the last one has been passed.
    void enter() {
        ++entered_;
        go_on();
    }
    void hear(int peer, const BarrierNote& note);
    std::uint64_t passed() const { return passed_; }  // barriers of this epoch
    // What is to be sent; clears the list.
    std::vector<Outgoing> outgoing() { return std::exchange(outgoing_, {}); }

private:
    int place(std::size_t from, std::size_t distance, bool back) const;
    void go_on();

    int rank_;
    Epoch epoch_ = 0;
    std::vector<int> ranks_;
    std::size_t own_ = 0;
    std::uint64_t entered_ = 0, passed_ = 0;
    std::uint32_t round_ = 0;
    bool told_ = false;  // whether the note of the current round is sent
    // The barrier number and round of each received note.
    std::set<std::pair<std::uint64_t, std::uint32_t>> heard_;
    std::vector<std::pair<int, BarrierNote>> early_;  // of a later epoch
    std::vector<Outgoing> outgoing_;
};

}  // namespace assay::events
