// The null transport: ranks are threads of one process, there is no network, and faults can be
// injected. It tests the whole network engine without MPI.
//
// Data is copied when a send matches its receive, or when a put or get is posted. The operation
// completes when the modelled links would have carried the message: each rank has one transmit and
// one receive side, and each side serves one message at a time. Time is real, so the engine's
// clocks are tested too, or simulated, so that a measured rate does not depend on the machine's
// load.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "core/clock.hpp"
#include "transport/transport.hpp"

namespace assay {

// The injected faults and the modelled links. Rates are in bytes per second; 0 means as fast as
// memory copies.
struct Faults {
    double rate = 0;                          // of each side without an entry below
    std::map<int, double> transmit, receive;  // by rank
    Nanoseconds delay = 0;                    // from transmission to arrival
    struct Flip {
        int source, destination;
        // Counts the payloads between these two from 0: puts, gets, and sends with a payload's tag.
        std::uint64_t message;
        std::size_t offset;  // of the byte that arrives with a flipped bit
    };
    std::vector<Flip> flips;
    // Sends whose message arrives twice: the copy takes the next receive of its peer and tag.
    struct Duplicate {
        int source, destination;
        std::uint64_t message;  // counted as for a flip
    };
    std::vector<Duplicate> duplicates;
    // A rank is killed at `kill_time`. Its peers notice at different times, from `notice_delay` to
    // `notice_delay` + `notice_spread` later. It comes back as a new process `return_delay` after
    // the kill (0: never). With deaths, Transport::survives() is true.
    struct Death {
        int rank;
        Nanoseconds kill_time, notice_delay = 20'000'000, notice_spread = 5'000'000,
                               return_delay = 0;
    };
    std::vector<Death> deaths;
    // A rank does nothing for `duration` from `start` on, and is not lost.
    struct Stall {
        int rank;
        Nanoseconds start, duration;
    };
    std::vector<Stall> stalls;
    // By rank: the number of posted operations after which it blocks until the job ends.
    std::map<int, std::uint64_t> silent_after;
    // What the launcher sends to rank 0; see Transport::launcher_line().
    std::function<std::optional<std::string>()> launcher_line;
    // Time does not advance while a rank runs. When all ranks wait, it advances to the next
    // completion; if there is none, in steps until a rank's time limit expires.
    bool simulated_time = false;
};

// Thrown by the next call of every rank after one rank has called abort().
struct Aborted : std::runtime_error {
    explicit Aborted(int status_) : std::runtime_error("the job was ended"), status(status_) {}
    int status;
};

// Runs `body` on `ranks` threads. Throws the error of the lowest rank that failed; Aborted only if
// there was no other.
void run_null_ranks(int ranks, const Faults& faults, const std::function<void(Transport&)>& body);

// The same with $ASSAY_NULL_RANKS ranks (default 1) and no faults. Throws Error.
void for_each_null_rank(const std::function<void(Transport&)>& body);

// A transport for rank 0 of two. Its operations complete at once and move nothing, to measure the
// cost of the measuring code.
std::unique_ptr<Transport> instant_transport();

}  // namespace assay
