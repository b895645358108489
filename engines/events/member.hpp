// Shared by the units of one rank: its settings, the membership, its operations, its counters, and
// the functions that send messages to the manager and to other units.
#pragma once

#include <deque>
#include <memory>

#include "core/statistics.hpp"
#include "events/post.hpp"
#include "events/settings.hpp"

namespace assay::events {

// What this rank did in the current slice of time.
struct Meter {
    Report now;
    Histogram latency;
};

class Member {
public:
    Member(Transport& transport_, const Settings& settings_)
        : transport(transport_),
          settings(settings_),
          rank(transport_.rank()),
          verify(transport_.keeps_contents()),
          post(transport_),
          connected(static_cast<std::size_t>(transport_.size()), true),
          reachable(connected) {
        members.since.resize(static_cast<std::size_t>(transport_.size()));
        lost_at.resize(members.since.size());
    }

    Transport& transport;
    const Settings& settings;
    const int rank;
    const bool verify;  // false where messages keep no contents
    Membership members;
    Post post;
    Meter meter;
    // By rank, ahead of the membership. Connected: to the transport. Reachable: and not a rank that
    // came back while the membership still has the one that was lost.
    std::vector<bool> connected, reachable;
    std::vector<Nanoseconds> lost_at;  // by rank: when it was last seen to be lost; 0: never

    bool reaches(int peer) const { return reachable[static_cast<std::size_t>(peer)]; }
    void to_manager(Bytes message) {
        if (rank == 0) to_self.push_back(std::move(message));
        else post.mail(0, tag::to_manager, std::make_shared<const Bytes>(std::move(message)));
    }
    void to_unit(int peer, Bytes message) {
        if (closed) return;  // nobody listens any more
        post.mail(peer, tag::unit, std::make_shared<const Bytes>(std::move(message)));
    }
    // The earliest time at which a unit has something to do though nothing completes.
    void want(Nanoseconds time) {
        time = std::max<Nanoseconds>(time, 1);  // 0: none
        wake = wake == 0 ? time : std::min(wake, time);
    }

    bool closed = false;        // this rank has announced to all units that it sends no more
    std::deque<Bytes> to_self;  // rank 0's messages to the manager
    Nanoseconds wake = 0;
};

}  // namespace assay::events
