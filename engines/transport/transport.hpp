// Moving bytes between the ranks of a job: one interface, so that every measurement runs over MPI, over
// the null transport (planted faults and delays, no network), and later over others.
//
// Not blocking throughout: a rank posts operations and polls for their completion, so that a peer that
// does not answer is noticed by the caller's own clock instead of hanging inside a library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace assay {

// An operation in flight; valid until poll() has reported it. Slots are reused.
using Ticket = std::int32_t;

class Transport {
public:
    virtual ~Transport() = default;

    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual std::string library() const = 0;  // "Open MPI 4.1.4", "null"

    // Two-sided. The buffer stays untouched by the caller until the ticket is reported.
    virtual Ticket send(const void* data, std::size_t bytes, int peer, int tag) = 0;
    virtual Ticket receive(void* data, std::size_t bytes, int peer, int tag) = 0;

    // One-sided, into and out of the window that every rank exposed. A reported get has its data; a
    // reported put may be reused locally only: call flush for remote completion.
    virtual std::byte* expose(std::size_t bytes) = 0;  // collective; the local part of the window
    virtual void withdraw() = 0;                       // collective
    virtual Ticket put(const void* data, std::size_t bytes, int peer, std::size_t offset) = 0;
    virtual Ticket get(void* data, std::size_t bytes, int peer, std::size_t offset) = 0;
    virtual void flush(int peer) = 0;  // every put to that peer is complete there

    // Appends the tickets that have completed since the last call; also drives progress.
    virtual void poll(std::vector<Ticket>& completed) = 0;

    // Collectives, used outside the timed parts. Begin, then poll test_collective() until true.
    virtual void begin_barrier() = 0;
    virtual void begin_sum(std::span<double> values) = 0;  // in place, on every rank
    virtual void begin_max(std::span<double> values) = 0;
    virtual bool test_collective() = 0;
    virtual std::vector<std::string> gather(const std::string& mine) = 0;  // on rank 0; blocking
    virtual void broadcast(std::string& value) = 0;                        // from rank 0; blocking

    // Ends every rank of the job now. Does not return.
    [[noreturn]] virtual void abort(int status) = 0;
};

// The transport of this executable, chosen at link time: MPI in assay-probe-<mpi>, null in assay-probe.
std::unique_ptr<Transport> make_transport(int& argc, char**& argv);

}  // namespace assay
