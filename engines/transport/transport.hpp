// Moving bytes between the ranks of a job: one interface, so that every measurement runs over MPI,
// over the null transport (planted faults and delays, no network), and later over others.
//
// Not blocking where it can be avoided: a rank posts operations and polls for their completion, so
// that a peer that does not answer is noticed by the caller's own clock instead of hanging inside a
// library. What blocks says so; callers put a Watchdog over it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/topology.hpp"

namespace assay {

// An operation in flight: a small number, free for reuse once poll() has reported it.
using Ticket = std::int32_t;

class Transport {
public:
    virtual ~Transport() = default;

    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual std::string library() const = 0;  // "Open MPI 4.1.4", "null"

    // In a simulator the host is the platform's and time is the platform's too: both are the
    // transport's to tell. There poll() and test_collective() wait, since looking costs no time and
    // nothing else can happen.
    virtual bool simulated() const { return false; }
    virtual std::string host() const { return host_name(); }
    virtual Nanoseconds clock() const { return now(); }

    // Two-sided. The caller leaves the buffer alone until the ticket is reported. Messages of one
    // peer and tag match receives in the order of posting.
    virtual Ticket send(const void* data, std::size_t bytes, int peer, int tag) = 0;
    virtual Ticket receive(void* data, std::size_t bytes, int peer, int tag) = 0;

    // One-sided, into and out of the window that every rank exposed. What a rank stored in its
    // window before a collective is what a get after it reads; a flushed put is seen by the target
    // after the next collective.
    virtual std::byte* expose(
        std::size_t bytes) = 0;   // collective, blocking; the local part of the window
    virtual void withdraw() = 0;  // collective, blocking
    virtual Ticket get(void* data, std::size_t bytes, int peer, std::size_t offset) = 0;
    // No ticket: MPI reports the completion of single puts only locally, which says nothing of the
    // peer.
    virtual void put(const void* data, std::size_t bytes, int peer, std::size_t offset) = 0;
    virtual void flush(int peer) = 0;  // blocking: every put to that peer is complete there

    // Appends the tickets that have completed since the last call; also drives progress.
    virtual void poll(std::vector<Ticket>& completed) = 0;

    // Collectives, one at a time. Begin, then call test_collective() until true; no rank gets there
    // before every rank has begun. The values are reduced in place, on every rank.
    virtual void begin_sum(std::span<double> values) = 0;
    virtual void begin_max(std::span<double> values) = 0;
    virtual bool test_collective() = 0;
    virtual std::vector<std::string> gather(
        const std::string& mine) = 0;                // blocking; filled on rank 0 only
    virtual void broadcast(std::string& value) = 0;  // blocking; from rank 0

    // Ends every rank of the job now.
    [[noreturn]] virtual void abort(int status) = 0;
};

// Runs `body` once for each rank that lives in this process: one under MPI; $ASSAY_NULL_RANKS
// threads (1 unless set) in the executable without MPI. Chosen at link time.
void for_each_rank(int& argc, char**& argv, const std::function<void(Transport&)>& body);

}  // namespace assay
