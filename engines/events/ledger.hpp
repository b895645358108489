// The ledger accounts for every fragment of every event that was assigned to a builder unit: built,
// lost, corrupt or duplicate.
//
// A bulk is entered when it is assigned for the first time, with the number of its sources. It is
// settled once, when a builder unit reports it or when it cannot be built any more. Memory is
// bounded by the bulks that are not settled; settled ones are only counted.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "events/units.hpp"

namespace assay::events {

// The outcome of the events of a bulk. Fragments are counted by event and source.
struct Outcome {
    std::uint64_t events_built = 0, events_incomplete = 0;
    std::uint64_t built = 0;      // fragments of the events that were built
    std::uint64_t partial = 0;    // verified, of events that lost another fragment
    std::uint64_t lost = 0;       // never arrived
    std::uint64_t corrupt = 0;    // arrived damaged
    std::uint64_t duplicate = 0;  // arrived in addition: twice, or for another event

    std::uint64_t fragments() const { return built + partial + lost + corrupt; }
    std::uint64_t events() const { return events_built + events_incomplete; }
    Outcome& operator+=(const Outcome& other);
};

struct Entry {
    std::uint32_t events, sources;
    Epoch epoch;  // of its first assignment
};

class Ledger {
public:
    // Throws std::logic_error if the bulk has been entered.
    void enter(std::uint64_t bulk, const Entry& entry);
    const Entry& entry(std::uint64_t bulk) const { return open_.at(bulk); }
    bool is_open(std::uint64_t bulk) const { return open_.contains(bulk); }
    // Why the outcome does not fit the bulk; empty if it does, and the bulk is then settled.
    std::string settle(std::uint64_t bulk, const Outcome& outcome);

    const Outcome& total() const { return total_; }
    std::uint64_t given() const { return given_; }  // events
    std::uint64_t given_fragments() const { return fragments_; }
    std::size_t open() const { return open_.size(); }  // bulks
    // Whether everything assigned is settled and adds up.
    bool balances() const {
        return open_.empty() && total_.fragments() == fragments_ && total_.events() == given_;
    }

private:
    std::map<std::uint64_t, Entry> open_;
    Outcome total_;
    std::uint64_t next_ = 0, given_ = 0, fragments_ = 0;
};

}  // namespace assay::events
