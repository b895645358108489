// The job as one rank sees it: the hosts of the other ranks, time limits for waiting, and the end
// of the job on failure.
//
// Waiting is limited in three ways. In a poll loop the rank's own clock detects that nothing
// completes, and the failure names the peers it waits for. A collective waits 1.5 times as long, so
// that a rank that can name a peer reports first; then a roll call finds the missing ranks. For a
// blocking call, a watchdog thread checks the time. A simulator detects deadlocks itself and ends
// the job.
#pragma once

#include <sched.h>

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/identity.hpp"
#include "core/record.hpp"
#include "transport/transport.hpp"
#include "transport/watchdog.hpp"

namespace assay::network {

struct WaitLimits {
    Nanoseconds timeout;  // longest time without progress, before the job fails
    Nanoseconds spin;     // polling without pause, before the processor is yielded
};

class Session {
public:
    // Collective: the ranks exchange their host names; rank 0 reports them.
    Session(Bench& bench, WaitLimits limits);

    Transport& transport;
    Sink& sink;

    int rank() const { return rank_; }
    int size() const { return static_cast<int>(hosts_.size()); }
    const std::string& host(int rank) const { return hosts_[static_cast<std::size_t>(rank)]; }
    // The host's name; with several ranks on a host "host:0", "host:1", ... in the order of ranks.
    const std::string& label(int rank) const { return labels_[static_cast<std::size_t>(rank)]; }
    int ranks_on_this_host() const;
    const std::vector<std::string>& hosts() const { return hosts_; }
    bool first_on_host() const;  // whether this is the lowest rank of its host
    bool several_hosts() const;  // whether the ranks are on more than one host
    // On rank 0: the host that has this address. Empty if none has it, or more than one.
    std::string host_at(const std::string& address) const;

    // For poll loops: something has completed, or nothing has. `pending_peers()` returns the peers
    // that the loop waits for.
    void note_progress(Nanoseconds time) { last_completion_ = time; }
    template <class PendingPeers>
    void note_idle(Nanoseconds time, PendingPeers pending_peers) {
        const Nanoseconds waited = time - last_completion_;
        if (waited > limits_.spin) sched_yield();
        transport.check_peers();
        if (waited > limits_.timeout + 2 * expected_) give_up(waited, pending_peers());
    }
    // Extends the limits: a burst may last `burst_seconds` without a completion.
    void expect(double burst_seconds) { expected_ = static_cast<Nanoseconds>(burst_seconds * 1e9); }

    // Collective: takes part in a max() of one value, for ranks without work. They sleep between
    // polls, so that a measuring rank on the same core has the processor.
    void max_sleeping(double& agreed);

    // Collectives with a time limit.
    void sum(std::span<double> values);
    void max(std::span<double> values);
    std::vector<std::string> gather(const std::string& value);
    // Runs a blocking call under the watchdog. `peer` is the rank it waits for (-1: all), `start`
    // the current time.
    template <class Call>
    auto guarded(const char* description, int peer, Call call, Nanoseconds start = now()) {
        blocking_call_ = description;
        awaited_peer_ = peer;
        if (watchdog_) watchdog_->enter(start);
        const struct Leave {
            std::optional<Watchdog>& watchdog;
            ~Leave() {
                if (watchdog) watchdog->leave();
            }
        } leave{watchdog_};
        return call();
    }

    // Collective. Bytes of memory that each rank may use: `requested`, but at most half of the
    // available memory per rank on the host that has least. Throws Error on every rank if some
    // rank's `minimum` is not available; its message names the `purpose` of the memory.
    double memory(double minimum, double requested, const std::string& purpose);

    // Whether SIGINT or SIGTERM has arrived. The process ends 3 s after a signal if the measurement
    // has not reacted.
    static bool interrupted();
    // Forgets the signal, and returns whether there was one. For tests: they run many sessions in
    // one process.
    static bool forget_signal();

    // Writes at most 5 records per second, on rank 0. `left` is in seconds.
    void progress(double done, const std::string& label, double left);

    // Writes a failure record (`peer` -1: no particular rank) and ends the job.
    [[noreturn]] void fail(const std::string& what, const std::string& fix, int peer);
    // Fails because nothing has completed for `waited`; names the peers that are waited for.
    [[noreturn]] void give_up(Nanoseconds waited, const std::vector<int>& peers);

private:
    void exchange_identities();
    void finish_collective(Nanoseconds pause = 0);
    [[noreturn]] void find_missing_ranks(Nanoseconds waited);
    void report_stall();

    int rank_;
    std::vector<std::string> hosts_, labels_;
    std::map<std::string, std::string> host_by_address_;  // on rank 0; "" if several have it
    WaitLimits limits_;
    Nanoseconds last_completion_ = 0, expected_ = 0, last_progress_ = 0;
    const char* blocking_call_ = "";
    int awaited_peer_ = -1;
    std::optional<Watchdog> watchdog_;  // none in a simulator
};

}  // namespace assay::network
