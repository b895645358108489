// The event manager's decisions: which builder unit gets which events. It knows nothing of
// messages or transports, so that it can be tested by itself.
//
// Each builder unit has slots, at least one for each of its credits. A slot holds a bulk from the
// time when it is given out until it is settled. It costs a credit, unless it is parked: then it
// waits for a source that was lost. Bulks are given out in batches, at most one to a builder
// unit in each, as soon as half of the builder units have a free slot, or after a short time with
// fewer. In rounds (a synchronised schedule, or one from a file) a batch waits for all builder
// units, except those that take far longer than the others.
//
// When a builder unit is lost, its bulks are given out again, before new ones.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "core/clock.hpp"
#include "events/ledger.hpp"
#include "events/units.hpp"

namespace assay::events {

// A bulk in a slot of a builder unit.
struct Place {
    int builder;  // rank
    std::uint16_t slot;
};
struct Assignment {
    std::uint64_t bulk;
    Place place;
};
// A bulk that was given out before.
struct Move {
    Assignment to;
    Place from;
    Epoch epoch;            // of the first time
    std::uint32_t sources;  // as of that epoch
};
// `fresh` are successive bulks from `first` on.
struct Batch {
    Epoch epoch = 0;
    std::uint64_t number = 0, first = 0;
    std::vector<Place> fresh{};
    std::vector<Move> moved{};

    std::size_t size() const { return fresh.size() + moved.size(); }
};

class EventManager {
public:
    struct Options {
        int ranks, credits, slots;
        bool in_rounds;
        std::uint32_t events_per_bulk;
        std::uint64_t events;  // 0: without end
        bool drop;             // policy: events that lost a fragment are not given out again
    };
    EventManager(const Units& units, const Options& options);

    const Membership& membership() const { return members_; }
    const Ledger& ledger() const { return ledger_; }
    std::uint64_t next_bulk() const { return next_; }
    std::uint64_t reassigned() const { return reassigned_; }

    // The ranks belong to the job from a new epoch on.
    void admit(const std::vector<int>& ranks);
    // Returns false if the rank does not belong.
    bool lose(int rank);
    // The next batch, if it is time for one.
    std::optional<Batch> plan(Nanoseconds time);
    // Until when plan() gives nothing if nothing is reported; none while there is nothing to give.
    std::optional<Nanoseconds> next_plan() const;
    // A builder unit's report of a bulk: why it is refused; empty if not.
    std::string settle(const Assignment& done, const Outcome& outcome, Nanoseconds time);
    // The bulk waits for a source, and costs no credit. False if the place does not hold it.
    bool park(const Assignment& parked);
    // When the bulk was given out to this place; 0 if it was not.
    Nanoseconds given_at(const Assignment& assignment) const;
    // No new bulks are given out; those of lost builder units still are.
    void stop() { stopped_ = true; }
    bool ended() const;  // every event that was asked for has been given out
    bool drained() const { return ended() && ledger_.open() == 0; }
    // Builder units that have all slots occupied, and the time since when; for messages.
    std::vector<int> waiting_for() const;

private:
    struct Slot {
        bool held = false, parked = false;
        std::uint64_t bulk = 0;
        Nanoseconds since = 0;
    };
    struct Builder {
        int rank;
        std::vector<Slot> slots{};
        int held = 0, parked = 0;
        bool member = false;
    };
    Builder* builder(int rank);
    // It has a credit, and a slot for it.
    bool has_credit(const Builder& b) const {
        return b.held - b.parked < options_.credits && b.held < options_.slots;
    }
    bool late(const Builder& builder, Nanoseconds time) const;
    Place occupy(Builder& builder, std::uint64_t bulk, Nanoseconds time);
    bool ready(Nanoseconds time) const;
    void release_all(Builder& builder);
    void drop_incomplete();
    std::uint32_t events_of(std::uint64_t bulk) const;

    Units units_;
    Options options_;
    Membership members_;
    Ledger ledger_;
    std::vector<Builder> builders_;
    struct Again {
        std::uint64_t bulk;
        Place from;
    };
    std::deque<Again> again_;
    std::uint64_t next_ = 0, batches_ = 0, reassigned_ = 0;
    std::uint32_t sources_ = 0;  // readout units that are members
    int members_building_ = 0;
    std::size_t rotation_ = 0;
    bool stopped_ = false;
    Nanoseconds last_ = 0;    // time of the last batch
    double turnaround_ = -1;  // ns, smoothed; below 0: no bulk was settled yet
};

}  // namespace assay::events
