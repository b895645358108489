// The event manager's decisions: which builder unit builds which group of events. It uses no
// messages or transports, so that it can be tested by itself.
//
// Each builder unit has slots, at least one for each of its credits. A slot holds a group from the
// group's assignment until it is closed. The group occupies a credit, unless it is parked: then it
// waits for a source that was lost. Groups are assigned in batches, at most one to a builder unit
// in each, as soon as half of the builder units have a free slot, or after a short time with fewer.
// In rounds (a synchronised schedule, or one from a file) a batch waits for all builder units,
// except those that take far longer than the others.
//
// When a builder unit is lost, its groups are reassigned before new groups are assigned.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "core/clock.hpp"
#include "events/ledger.hpp"
#include "events/units.hpp"

namespace assay::events {

struct BuilderSlot {
    int builder;  // rank
    std::uint16_t slot;
};
struct Assignment {
    std::uint64_t group;
    BuilderSlot target;
};
// A group that was assigned before, to a builder unit that was lost.
struct Reassignment {
    Assignment to;
    BuilderSlot from;
    Epoch epoch;            // of the first assignment
    std::uint32_t sources;  // members in that epoch
};
// `new_slots` receive successive new groups, from number `first` on.
struct Batch {
    Epoch epoch = 0;
    std::uint64_t number = 0, first = 0;
    std::vector<BuilderSlot> new_slots{};
    std::vector<Reassignment> reassigned{};

    std::size_t size() const { return new_slots.size() + reassigned.size(); }
};

class EventManager {
public:
    struct Options {
        int ranks, credits, slots;
        bool in_rounds;
        std::uint32_t events_per_group;
        std::uint64_t events;  // 0: until stop()
        bool drop;             // events that have lost a fragment are not reassigned (policy)
    };
    EventManager(const Units& units, const Options& options);

    const Membership& membership() const { return members_; }
    const Ledger& ledger() const { return ledger_; }
    std::uint64_t next_group() const { return next_group_; }
    std::uint64_t reassigned() const { return reassigned_; }

    // Makes the ranks members, from a new epoch on.
    void admit(const std::vector<int>& ranks);
    // Removes a lost rank from the membership. Returns false if it is not a member.
    bool remove(int rank);
    // The next batch, if one is due.
    std::optional<Batch> plan(Nanoseconds time);
    // When plan() is to be called again if no report arrives before; none while nothing can be
    // assigned.
    std::optional<Nanoseconds> next_plan() const;
    // A builder unit reports a group as closed. Returns the reason if the report is wrong, else "".
    std::string close(const Assignment& done, const Outcome& outcome, Nanoseconds time);
    // Marks a group as waiting for a source: it occupies no credit. Returns false if the slot does
    // not hold the group.
    bool park(const Assignment& parked);
    // When the group was assigned to this slot; 0 if it was not.
    Nanoseconds assigned_at(const Assignment& assignment) const;
    // From now on no new groups are assigned; groups of lost builder units still are.
    void stop() { stopped_ = true; }
    bool all_assigned() const;  // every event has been assigned, or stop() was called
    bool drained() const { return all_assigned() && ledger_.open_groups() == 0; }
    // The builder units that have not closed a group assigned to them.
    std::vector<int> busy_builders() const;

private:
    struct Slot {
        bool occupied = false, parked = false;
        std::uint64_t group = 0;
        Nanoseconds assigned_at = 0;
    };
    struct Builder {
        int rank;
        std::vector<Slot> slots{};
        int occupied = 0, parked = 0;
        bool member = false;
    };
    Builder* builder(int rank);
    // Whether it has a free credit and a free slot.
    bool has_credit(const Builder& b) const {
        return b.occupied - b.parked < options_.credits && b.occupied < options_.slots;
    }
    bool is_late(const Builder& builder, Nanoseconds time) const;
    BuilderSlot occupy(Builder& builder, std::uint64_t group, Nanoseconds time);
    bool batch_is_due(Nanoseconds time) const;
    void orphan_groups(Builder& builder);
    void drop_incomplete();
    std::uint32_t event_count(std::uint64_t group) const;

    Units units_;
    Options options_;
    Membership members_;
    Ledger ledger_;
    std::vector<Builder> builders_;
    struct Orphan {  // a group whose builder unit was lost
        std::uint64_t group;
        BuilderSlot from;
    };
    std::deque<Orphan> orphans_;
    std::uint64_t next_group_ = 0, batches_ = 0, reassigned_ = 0;
    std::uint32_t sources_ = 0;  // readout units that are members
    int live_builders_ = 0;
    std::size_t rotation_ = 0;
    bool stopped_ = false;
    Nanoseconds last_batch_ = 0;  // time of the last batch
    double turnaround_ = -1;      // ns, smoothed; below 0: no group was closed yet
};

}  // namespace assay::events
