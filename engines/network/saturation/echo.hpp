// Ping-pong: the time of one message of each size between two ranks, without other traffic.
#pragma once

#include "network/saturation/round.hpp"
#include "network/session.hpp"

namespace assay::network::saturate {

// Half round trips of one pair and size; samples in seconds, in the order of measurement.
struct Echo {
    std::size_t pair, size;  // pair: index in the round
    std::vector<double> samples;
};

// Collective. Appends the times of all pairs to `echoes` on rank 0 only, and the payload that this
// rank sent to other hosts to `bytes_sent_off_host`. Returns false after a signal.
bool run_echoes(Session& session, const Round& round, std::vector<Echo>& echoes,
                std::uint64_t& bytes_sent_off_host);

}  // namespace assay::network::saturate
