// The transport interface: moves bytes between the ranks of a job. Measurements run over MPI or
// over the null transport, which has no network and can simulate faults and delays.
//
// Most calls do not block: a rank posts operations and polls for their completion, so the caller
// can time out when a peer does not answer. A blocking call of the library would hang. Blocking
// calls are marked as such; callers guard them with a Watchdog.
#pragma once

#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/pages.hpp"
#include "core/topology.hpp"

namespace assay {

// Identifies an operation in flight. poll() reports its completion; the number is then reused.
using Ticket = std::int32_t;

// A rank that died, fell silent or was cut off, or one that came back.
struct PeerChange {
    enum class State : std::uint8_t { lost, joined };
    int rank;
    State state;
};

// Something that a transport counted. Those that send packets themselves count "packets_sent" and
// "packets_resent", which are lost ones and those that only seemed so.
struct Counter {
    std::string name;
    std::uint64_t value;
};

class Transport {
public:
    virtual ~Transport() = default;

    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual std::string library() const = 0;  // "Open MPI 4.1.4", "null"

    // In a simulator, host and clock are those of the simulated platform. There poll() and
    // test_collective() block, since polling does not advance simulated time.
    virtual bool simulated() const { return false; }
    virtual std::string host() const { return host_name(); }
    virtual Nanoseconds clock() const { return now(); }

    // In a simulator, makes the next poll() return at this time even if nothing has completed.
    // Elsewhere poll() never waits, and this does nothing.
    virtual void wake_at(Nanoseconds /*time*/) {}

    // In a simulator, a send that could complete before its receive waits while the peer is behind
    // by more than about twice this many messages. Elsewhere the library limits them.
    virtual void limit_unreceived(int /*messages*/) {}

    // Memory for messages, page-aligned; release() frees it. In SimGrid all of it is one small
    // block, so that a simulation of many ranks fits: keeps_contents() is then false.
    virtual std::byte* allocate(std::size_t bytes) { return allocate_pages(bytes); }
    virtual void release(std::byte* memory) { free_pages(memory); }
    virtual bool keeps_contents() const { return true; }

    // Two-sided operations. The buffer must not be used until poll() reports the ticket. Messages
    // with the same peer and tag match receives in the order of posting. A message may be shorter
    // than its receive.
    virtual Ticket send(const void* data, std::size_t bytes, int peer, int tag) = 0;
    virtual Ticket receive(void* data, std::size_t bytes, int peer, int tag) = 0;

    // One-sided operations on a window: `bytes` of memory on each rank. A get reads what the target
    // stored before the last collective. The target sees a flushed put after the next collective.
    // create_window and free_window are collective and block. create_window returns the local part.
    virtual std::byte* create_window(std::size_t bytes) = 0;
    virtual void free_window() = 0;
    // Whether the window is memory of this rank alone, since the library's shared memory has no
    // room for it: transfers within a host are slower then.
    virtual bool has_private_window() const { return false; }
    virtual Ticket get(void* data, std::size_t bytes, int peer, std::size_t offset) = 0;
    // Returns no ticket: MPI reports when a put is complete locally, but not at the peer.
    virtual void put(const void* data, std::size_t bytes, int peer, std::size_t offset) = 0;
    virtual void flush(int peer) = 0;  // blocks until every put to the peer is complete there

    // Appends the tickets completed since the last call; also drives progress.
    virtual void poll(std::vector<Ticket>& completed) = 0;

    // Gives the processor to other threads until something may have arrived, at most for `limit`.
    // `idle`: the time since the last completion.
    virtual void idle_wait(Nanoseconds /*idle*/, Nanoseconds /*limit*/) { sched_yield(); }

    // Whether the job goes on when a rank is lost. Where it does not (MPI), the three calls below
    // report nothing.
    virtual bool survives() const { return false; }
    // 0 for a first process; higher for a process that replaces a lost one. Such a process takes
    // part in no collective. After a loss the other ranks cannot either: collectives throw Error.
    virtual int incarnation() const { return 0; }
    // Appends the peers that were lost or came back since the last call, oldest first. A peer that
    // comes back is a new process without the state of the lost one.
    virtual void peer_changes(std::vector<PeerChange>& /*changes*/) {}
    // Appends the tickets of operations that failed since the last call. When a peer is lost, every
    // operation in flight with it fails, and its buffer may be used again. Operations that are
    // posted to a lost peer fail at the next call.
    virtual void poll_failed(std::vector<Ticket>& /*failed*/) {}
    // Whether Assay's own launcher started this rank: standard input is then its, and read by the
    // transport alone.
    virtual bool has_launcher() const { return false; }
    // The next line that the launcher has sent to this rank since the start, if one has arrived.
    virtual std::optional<std::string> launcher_line() { return std::nullopt; }
    // For measurements that need every rank, while they wait: throws Error if one was lost.
    virtual void check_peers() const {}

    // Collectives, one at a time: call begin_*, then test_collective() until it returns true, which
    // happens only after every rank has begun. The values are reduced in place on every rank and
    // must stay valid until then.
    virtual void begin_sum(std::span<double> values) = 0;
    virtual void begin_max(std::span<double> values) = 0;
    virtual bool test_collective() = 0;
    // Both block. gather returns the values in the order of ranks on rank 0, nothing on the others.
    virtual std::vector<std::string> gather(const std::string& value) = 0;
    virtual void broadcast(std::string& value) = 0;  // from rank 0

    virtual std::vector<Counter> counters() const { return {}; }

    // MPI's own all-to-all (MPI_Alltoall, MPI_Alltoallv); other transports have none. Both block.
    // Rank r gets the `bytes_per_rank` bytes from r * `bytes_per_rank` on; with counts, the bytes
    // that follow those of the ranks below r.
    virtual bool has_all_to_all() const { return false; }
    virtual void all_to_all(const std::byte* /*from*/, std::byte* /*to*/,
                            std::size_t /*bytes_per_rank*/) {}
    virtual void all_to_all(const std::byte* /*from*/, std::span<const int> /*sent*/,
                            std::byte* /*to*/, std::span<const int> /*received*/) {}

    // Single calls of the library, whose durations are measured. Only MPI has them. call_send() and
    // call_receive() block. call_isend() is send() without its shortcut for simulations.
    virtual bool has_calls() const { return false; }
    virtual void call_send(const void* /*data*/, std::size_t /*bytes*/, int /*peer*/, int /*tag*/) {
    }
    virtual void call_receive(void* /*data*/, std::size_t /*bytes*/, int /*peer*/, int /*tag*/) {}
    virtual Ticket call_isend(const void* data, std::size_t bytes, int peer, int tag) {
        return send(data, bytes, peer, tag);
    }
    // Lets time pass without a call of the library, like a computing program.
    virtual void pause(Nanoseconds duration) {
        for (const Nanoseconds until = now() + duration; now() < until;) {
        }
    }

    // Ends every rank of the job immediately.
    [[noreturn]] virtual void abort(int status) = 0;
};

// Runs `body` once for each rank of this process. Under MPI a process is one rank, also without MPI
// if $ASSAY_TRANSPORT names a transport; the null transport runs $ASSAY_NULL_RANKS ranks (default
// 1) as threads. The implementation is chosen at link time.
void for_each_rank(int& argc, char**& argv, const std::function<void(Transport&)>& body);

}  // namespace assay
