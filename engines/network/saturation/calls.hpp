// Calls: the durations of MPI_Send, MPI_Isend and MPI_Recv by message size.
//
// The receiver posts its receive late: it sends a ready message, pauses, and receives. A send that
// returns before the receive is posted does not wait for its receiver (SimGrid: it is detached). If
// its message has arrived by then, the receive takes only the time of MPI_Recv itself.
#pragma once

#include "network/saturation/round.hpp"
#include "network/session.hpp"

namespace assay::network::saturate {

// The calls of one pair and size; samples in seconds, in the order of measurement.
struct CallTimes {
    std::size_t pair, size;  // pair: index in the round
    double pause;            // s until the receive
    std::vector<double> send, isend, receive;
};

// Collective. Appends the times of all pairs to `times` on rank 0 only, and the payload that this
// rank sent to other hosts to `bytes_sent_off_host`. Measures nothing over a transport without
// calls. Returns false, on every rank, after a signal at any rank.
bool run_calls(Session& session, const Round& round, std::vector<CallTimes>& times,
               std::uint64_t& bytes_sent_off_host);

}  // namespace assay::network::saturate
