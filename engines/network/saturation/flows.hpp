// Runs the flows of one round at once, and measures the rate of each while all of them ran.
//
// Every rank records when its messages arrive, by its own clock, counted from a common barrier. The
// ranks then agree on a common time: it begins when the last flow is in steady state (each slot of
// its sender's window was used once) and ends after the requested seconds. The flows go on for half
// as long again, so that the load is the same until the end of the common time. A flow's rate is
// its bytes in the common time (interpolated between arrivals) over that time; eight slices of the
// time give the spread. Rates over the whole time would include the start of slow flows and the
// time after fast ones have ended.
//
// A sender stops by its own clock, so the number of messages is not known beforehand. The last
// message of each slot of its window is an end marker. The receiver keeps as many receives posted
// as the sender has slots, so none is left over.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "network/saturation/round.hpp"
#include "network/session.hpp"

namespace assay::network::saturate {

inline constexpr std::size_t slices = 8;

struct FlowRate {
    int flow;         // index in the round
    double rate = 0;  // B/s in the common time
    std::array<double, slices> slice_rates{};
    std::uint64_t messages = 0;
};

struct Outcome {
    double window = 0;            // seconds of the common time; not positive if there was none
    std::vector<FlowRate> flows;  // those that arrive at this rank
    std::uint64_t bytes_sent_off_host = 0;
    bool interrupted = false;  // equal on every rank
};

// Collective. `inflight`: messages in flight on each flow.
Outcome run_flows(Session& session, const Round& round, int inflight);

}  // namespace assay::network::saturate
