// Ping-pong: the time of one message of each size between two ranks, alone in the network.
#pragma once

#include "network/saturation/round.hpp"
#include "network/session.hpp"

namespace assay::network::saturate {

// Half round trips of one pair and size; samples in seconds, in the order in which they were
// measured.
struct Echo {
    std::size_t pair, size;
    std::vector<double> samples;
};

// Collective. Rank 0 is given the times of all pairs, the others nothing. False when a signal came.
bool run_echoes(Session& session, const Round& round, std::vector<Echo>& echoes,
                std::uint64_t& sent_away);

}  // namespace assay::network::saturate
