// Ping-pong: the time of one message of each size between two ranks, without other traffic.
#pragma once

#include "network/saturation/round.hpp"
#include "network/session.hpp"

namespace assay::network::saturate {

// Half round trips of one pair and size; samples in seconds, in the order of measurement.
struct PingPongTimes {
    std::size_t pair, size;  // pair: index in the round
    std::vector<double> samples;
};

// Collective. Appends the times of all pairs to `times` on rank 0 only, and the payload that this
// rank sent to other hosts to `bytes_sent_off_host`. Returns false after a signal.
bool run_ping_pong(Session& session, const Round& round, std::vector<PingPongTimes>& times,
                   std::uint64_t& bytes_sent_off_host);

}  // namespace assay::network::saturate
