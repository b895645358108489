// The state that the units of one rank share: its settings, the membership, its operations and
// counters, and the functions that send messages to the manager and to other units.
#pragma once

#include <deque>
#include <memory>

#include "core/statistics.hpp"
#include "events/operations.hpp"
#include "events/settings.hpp"

namespace assay::events {

// The counts of this rank in the current slice of time.
struct SliceCounters {
    Report report;
    Histogram latency;
};

class RankContext {
public:
    RankContext(Transport& transport_, const Settings& settings_)
        : transport(transport_),
          settings(settings_),
          rank(transport_.rank()),
          verify(transport_.keeps_contents()),
          schedule(settings_.schedule_of(rank)),
          operations(transport_),
          connected(static_cast<std::size_t>(transport_.size()), true),
          reachable(connected) {
        members.since.resize(static_cast<std::size_t>(transport_.size()));
        lost_at.resize(members.since.size());
    }

    Transport& transport;
    const Settings& settings;
    const int rank;
    const bool verify;  // false where messages keep no contents
    Schedule schedule;  // of this rank; a new plan replaces that of the settings
    Membership members;
    OperationTracker operations;
    SliceCounters counters;
    // By rank; newer than the membership. Connected: as the transport reports. Reachable:
    // connected, and the membership does not list an earlier process of the rank, which the
    // connected one has replaced.
    std::vector<bool> connected, reachable;
    std::vector<Nanoseconds> lost_at;  // by rank: time of its last loss; 0: never lost

    bool is_reachable(int peer) const { return reachable[static_cast<std::size_t>(peer)]; }
    void send_to_manager(Bytes message) {
        if (rank == 0) own_messages.push_back(std::move(message));
        else
            operations.send_control(0, tag::to_manager,
                                    std::make_shared<const Bytes>(std::move(message)));
    }
    void send_to_unit(int peer, Bytes message) {
        if (closed) return;  // the peers have no receive posted any more
        operations.send_control(peer, tag::unit, std::make_shared<const Bytes>(std::move(message)));
    }
    // Makes the rank's loop run at `time` even if no operation completes; of several times the
    // earliest counts.
    void schedule_wake(Nanoseconds time) {
        time = std::max<Nanoseconds>(time, 1);  // 0: none
        wake = wake == 0 ? time : std::min(wake, time);
    }

    bool closed = false;             // this rank has sent `close` to all units
    std::deque<Bytes> own_messages;  // rank 0's messages to the manager
    Nanoseconds wake = 0;            // see schedule_wake(); 0: none
};

}  // namespace assay::events
