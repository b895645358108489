// The transport without a network: the ranks are threads of one process, and what goes wrong is
// planted.
//
// It is how the whole network engine is tested without MPI. Data is copied when a send meets its
// receive (or a put or get is posted); the operation completes when the links, modelled as one
// transmit and one receive side a rank that each serve one message after the other, would have
// carried it. Time is real, so that the engine's own clocks are tested too.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "core/clock.hpp"
#include "transport/transport.hpp"

namespace assay {

// What is planted. Rates are in bytes a second; 0 means as fast as memory copies.
struct Faults {
    double rate = 0;                          // of every side that has none of its own below
    std::map<int, double> transmit, receive;  // of a rank's sides
    Nanoseconds delay = 0;                    // from transmission to arrival
    struct Flip {
        int source, destination;
        std::uint64_t message;  // the n-th payload between these two, from 0: sends that are not
                                // answers, puts, gets
        std::size_t offset;     // of the byte that arrives with a bit flipped
    };
    std::vector<Flip> flips;
    std::map<int, std::uint64_t>
        silent_after;  // a rank stops answering after that many posted operations
};

// Thrown by every rank's next call once one rank has called abort().
struct Aborted : std::runtime_error {
    explicit Aborted(int status_) : std::runtime_error("the job was ended"), status(status_) {}
    int status;
};

// Runs `body` on `ranks` threads. Throws what the lowest rank threw, Aborted last.
void run_null_ranks(int ranks, const Faults& faults, const std::function<void(Transport&)>& body);

// Rank 0 of two, the other of which does everything at once and moves nothing: what is left is the
// cost of the measuring code.
std::unique_ptr<Transport> instant_transport();

}  // namespace assay
