// The job as one rank sees it: who the others are, how long to wait for them, and how to stop.
//
// Waiting has three limits. In a poll loop the rank's own clock notices that nothing completes, and
// the peers it waits for are named. In a collective the others are waited for half as long again,
// so that a rank that knows a name speaks first; then a roll call tells who is missing. In a call
// that blocks a watchdog looks on from its own thread. In a simulator nobody waits in vain: it
// notices by itself that nothing can move any more, and ends the job.
#pragma once

#include <sched.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/record.hpp"
#include "transport/transport.hpp"
#include "transport/watchdog.hpp"

namespace assay::network {

struct Patience {
    Nanoseconds timeout;  // without any progress, before the job is given up
    Nanoseconds spin;     // polling without pause, before the processor is offered to others
};

class Session {
public:
    // Collective: the ranks tell each other their host names.
    Session(Bench& bench, Patience patience);

    Transport& transport;
    Sink& sink;

    int rank() const { return rank_; }
    int size() const { return static_cast<int>(hosts_.size()); }
    const std::string& host(int rank) const { return hosts_[static_cast<std::size_t>(rank)]; }
    // The host's name; with several ranks on a host "host:0", "host:1" in the order of ranks.
    const std::string& label(int rank) const { return labels_[static_cast<std::size_t>(rank)]; }
    int ranks_on_this_host() const;
    bool first_on_host() const;
    bool several_hosts() const;

    // For poll loops. `waiting()` gives the peers that are waited for.
    void moved(Nanoseconds at) { last_move_ = at; }
    template <class Waiting>
    void idle(Nanoseconds at, Waiting waiting) {
        const Nanoseconds still = at - last_move_;
        if (still > patience_.spin) sched_yield();
        if (still > patience_.timeout + 2 * expected_) give_up(still, waiting());
    }
    // Bursts may last that long without a completion: added to the limits.
    void expect(double burst_seconds) { expected_ = static_cast<Nanoseconds>(burst_seconds * 1e9); }

    // Collective: for ranks that have nothing to do until others have. They sleep between looks, so
    // that those who measure have the processor, where several ranks share one.
    void rest(double& agreed);  // takes part in a max() of one value

    // Collectives, waited for with a limit.
    void sum(std::span<double> values);
    void max(std::span<double> values);
    std::vector<std::string> gather(const std::string& mine);
    // Around a blocking call on behalf of `peer` (-1: everyone) that begins `at`.
    template <class Call>
    auto guarded(const char* doing, int peer, Call call, Nanoseconds at = now()) {
        doing_ = doing;
        awaited_ = peer;
        if (watchdog_) watchdog_->enter(at);
        const struct Leave {
            std::optional<Watchdog>& watchdog;
            ~Leave() {
                if (watchdog) watchdog->leave();
            }
        } leave{watchdog_};
        return call();
    }

    // Collective. Bytes of memory that each rank may take: `wanted`, or half of what the scarcest
    // host has available for each of its ranks. Throws Error, on every rank, where a rank's `least`
    // (this rank's need) is more than there is; `what` names what needs it.
    double memory(double least, double wanted, const std::string& what);

    // SIGINT or SIGTERM has come to this rank. Ends the process some seconds later if nobody
    // reacts.
    static bool interrupted();

    // At most 5 a second, from rank 0. `left` in seconds.
    void progress(double done, const std::string& label, double left);

    // Say what this host cannot go on with (`peer` -1: nobody in particular), then end the job.
    [[noreturn]] void fail(const std::string& what, const std::string& fix, int peer);
    [[noreturn]] void give_up(Nanoseconds still, const std::vector<int>& peers);

private:
    void finish_collective(Nanoseconds pause = 0);
    [[noreturn]] void call_the_roll(Nanoseconds still);
    void stalled();

    int rank_;
    std::vector<std::string> hosts_, labels_;
    Patience patience_;
    Nanoseconds last_move_ = 0, expected_ = 0, last_progress_ = 0;
    const char* doing_ = "";
    int awaited_ = -1;
    std::optional<Watchdog> watchdog_;  // none in a simulator
};

// One label a rank, see Session::label.
std::vector<std::string> rank_labels(const std::vector<std::string>& hosts);

}  // namespace assay::network
