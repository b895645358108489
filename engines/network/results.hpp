// The results of one size and operation: the tallies of all ranks, gathered on rank 0 and written
// as records.
//
// A flow may be timed by one rank and verified by the other; both parts are combined here. Only
// verified bytes count as received.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/statistics.hpp"
#include "network/exchange.hpp"
#include "network/session.hpp"

namespace assay::network {

// One rank's results for one size and operation, over all passes.
class Tally {
public:
    Tally(Op operation, std::size_t message_bytes) : op(operation), size(message_bytes) {}

    void add(const Burst& burst, const Outcome& outcome);
    // The results as bytes, to be gathered on rank 0.
    std::string packed(int rank) const;

    const Op op;
    const std::size_t size;
    Histogram latency;
    Nanoseconds timed = 0;
    std::uint64_t operations = 0, bytes = 0, corrupted = 0;

private:
    std::map<int, std::vector<double>> flows_;        // peer -> B/s of each burst
    std::map<int, std::uint64_t> messages_;           // peer -> messages of the flows timed here
    std::map<int, std::uint64_t> corrupted_sources_;  // source -> messages
    std::vector<Corruption> corruptions_;
};

// The totals of all ranks, equal on every rank; the vectors have one value per pass.
struct Passes {
    // Verified bytes and operations, per second from the first post to the last completion.
    std::vector<double> bandwidth, rate;
    double bytes = 0, operations = 0, corrupted = 0;
    double wall = 0;            // seconds from the first post to the last completion, summed
    std::int64_t messages = 0;  // of each flow
};

// Collective: replaces `latency` by the sum of all ranks' histograms.
void merge(Session& session, Histogram& latency);

// Half of each value: from round trips to half round trips.
Summary halved(Summary summary);

// On rank 0: the rows of the pair matrix, from the gathered Tally::packed() of all ranks.
void report_rows(Session& session, const Measurement& measurement, const Tally& tally,
                 const std::vector<std::string>& packed, const Json& params);

// Collective: sums the latencies, gathers the tallies, and writes the records on rank 0. `params`
// are the measurement's own parameters in the records.
void report(Session& session, const Measurement& measurement, Json params, Tally& tally,
            const Passes& passes);

}  // namespace assay::network
