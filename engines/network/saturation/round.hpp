// One round of the saturation experiments, read from one line of JSON:
//
//     {"flows": [[0,4],[4,0]], "size": 1048576, "seconds": 0.5, "params": {"experiment": "host"}}
//     {"ping_pong": [[0,1],[0,2]], "sizes": [1,1024], "count": 20, "params": {}}
//     {"calls": [[0,1]], "sizes": [1,1024], "pauses": [5e-4,5e-4], "count": 20, "params": {}}
//
// The flows of a round run at the same time, each from one rank to another: both directions of a
// pair are two flows, an all-to-all of n ranks is n (n - 1). "seconds" is the measured time; the
// round takes 1.5 times as long. "ping_pong" lists the pairs, which run one after the other. So
// does "calls", which times the MPI calls themselves (see calls.hpp). "pauses" are the seconds
// until the receive, for each size. The records repeat "params", by which the caller recognises its
// rounds; the engine does not use them. "size" and "sizes" are in bytes, "seconds" in s, "count" in
// round trips (or calls) for each pair and size. The writer is python/assay/model/rounds.py.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/record.hpp"

namespace assay::network::saturate {

// A flow as its sender or its receiver sees it.
struct FlowEnd {
    int flow;  // index in the round
    int peer;
};

struct Round {
    enum class Kind { flows, ping_pong, calls };
    Kind kind;
    std::vector<std::pair<int, int>> pairs;  // ranks: source and target, or first and second
    std::size_t size = 0;                    // flows: bytes of a message
    double seconds = 0;                      // flows: the measured time
    std::vector<std::size_t> sizes;          // ping-pong, calls: bytes of a message
    std::vector<double> pauses;              // calls: s until the receive, for each size
    std::int64_t count = 0;                  // of each pair and size: round trips, or calls
    Json params;                             // repeated in the records

    // The flows that this rank sends, and those that it receives, in the order of `pairs`.
    std::vector<FlowEnd> outgoing(int rank) const;
    std::vector<FlowEnd> incoming(int rank) const;
};

// Throws Error with the reason if the line is not a valid round for `ranks` ranks.
Round read_round(const std::string& line, int ranks);

}  // namespace assay::network::saturate
