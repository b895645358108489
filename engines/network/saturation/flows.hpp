// The flows of one round, all at once, and the rate of each in the time in which all of them ran.
//
// Every rank notes when its messages arrive, by its own clock, from a barrier that all have passed.
// The ranks then agree on a common window: from when the last of the flows has come to run (each
// place of its sender's window has turned once), to the end of the time asked for; flows go on for
// half as long again, so that what is under way then still moves as it did. What a flow carried in
// it, interpolated between arrivals, is its rate; the window's eight slices give the spread, so
// that one round tells how sure it is. Rates over the whole time would count the start of slow
// flows and what fast ones left behind, and a single rank's clock would speak for all.
//
// A sender stops by its own clock. Nobody knows beforehand how many messages that will be: the last
// of each place in the sender's window carries a word that says so, and the receiver, which keeps
// as many receives posted as the sender has places, has then none left over.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "network/saturation/round.hpp"
#include "network/session.hpp"

namespace assay::network::saturate {

inline constexpr std::size_t slices = 8;

struct Carried {
    int flow;
    double rate = 0;  // B/s in the common window
    std::array<double, slices> sliced{};
    std::uint64_t messages = 0;
};

struct Outcome {
    double window = 0;             // seconds; not positive when not all flows ran at one time
    std::vector<Carried> carried;  // of the flows that arrive here
    std::uint64_t sent_away = 0;   // bytes that left for other hosts
    bool interrupted = false;      // the same on every rank
};

// Collective. `inflight`: messages that each flow has under way.
Outcome run_flows(Session& session, const Round& round, int inflight);

}  // namespace assay::network::saturate
