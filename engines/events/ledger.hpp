// The ledger accounts for every fragment of every event that was assigned to a builder unit: built,
// lost, corrupt or duplicate.
//
// A group's entry is opened when it is assigned for the first time, with the number of its sources.
// It is closed once, when a builder unit reports it or when it cannot be built any more. Memory is
// bounded by the open entries; closed ones are only counted.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "events/units.hpp"

namespace assay::events {

// The outcome of the events of a group. Fragments are counted by event and source.
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

// An assigned group.
struct Entry {
    std::uint32_t events, sources;
    Epoch epoch;  // of its first assignment
};

class Ledger {
public:
    // Throws std::logic_error if the group has been opened before.
    void open(std::uint64_t group, const Entry& entry);
    const Entry& entry(std::uint64_t group) const { return open_.at(group); }
    bool is_open(std::uint64_t group) const { return open_.contains(group); }
    // Closes the group. If the outcome does not fit its entry, returns the reason and leaves it
    // open.
    std::string close(std::uint64_t group, const Outcome& outcome);

    const Outcome& total() const { return total_; }
    std::uint64_t assigned_events() const { return assigned_events_; }
    std::uint64_t assigned_fragments() const { return assigned_fragments_; }
    std::size_t open_groups() const { return open_.size(); }
    // Whether everything assigned is closed and adds up.
    bool balances() const {
        return open_.empty() && total_.fragments() == assigned_fragments_ &&
               total_.events() == assigned_events_;
    }

private:
    std::map<std::uint64_t, Entry> open_;
    Outcome total_;
    std::uint64_t next_group_ = 0, assigned_events_ = 0, assigned_fragments_ = 0;
};

}  // namespace assay::events
