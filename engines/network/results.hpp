// What a size and operation came to: each rank's tally, brought together on rank 0 and told as
// records.
//
// The rank that timed a flow knows how long it took, the rank where it arrived knows what of it was
// right: the two meet here. Only verified bytes count as received.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/statistics.hpp"
#include "network/exchange.hpp"
#include "network/session.hpp"

namespace assay::network {

// One rank's part in one size and operation, over all passes.
class Tally {
public:
    Tally(Op of, std::size_t bytes_each) : op(of), size(bytes_each) {}

    void add(const Burst& burst, Outcome outcome);
    std::string packed(int rank) const;

    const Op op;
    const std::size_t size;
    Histogram latency;
    Nanoseconds timed = 0;
    std::uint64_t operations = 0, bytes = 0, corrupted = 0;

private:
    std::map<int, std::vector<double>> flows_;  // peer -> B/s of each burst
    std::map<int, std::uint64_t> messages_;     // peer -> messages of the flows timed here
    std::map<int, std::uint64_t> wrong_from_;   // source -> messages
    std::vector<Wrong> wrong_;
};

// What all ranks together did, agreed by reduction; one value a pass.
struct Passes {
    std::vector<double> bandwidth,
        rate;  // verified bytes, operations over the longest rank's timed part
    double bytes = 0, operations = 0, corrupted = 0;
    double wall = 0;            // seconds: the passes' sum of the longest rank's timed part
    std::int64_t messages = 0;  // of each flow
};

// Collective: the histograms of all ranks in one, on every rank.
void merge(Session& session, Histogram& latency);

// Of a round trip, the half of it.
Summary halved(Summary summary);

// Collective: sums the latencies, gathers the tallies, and on rank 0 writes the records. `params`
// are those that the measurement itself adds.
void report(Session& session, const Measurement& measurement, Json params, Tally& tally,
            const Passes& passes);

}  // namespace assay::network
