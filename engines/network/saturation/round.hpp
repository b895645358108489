// What one round of the saturation experiments is, as the conductor writes it: one line of JSON.
//
//     {"flows": [[0,4],[4,0]], "size": 1048576, "seconds": 0.5, "params": {"experiment": "host"}}
//     {"echo": [[0,1],[0,2]], "sizes": [1,1024], "count": 20, "params": {}}
//
// Flows run at the same time, each from one rank to another; a pair that sends both ways is two
// flows, a ring of four is four, an all-to-all of n is n (n - 1). "seconds" is what is measured;
// what all take is half as much again. Echoes are pairs that play ping-pong, one pair after the
// other. "params" come back in the records, so that the conductor knows its own rounds again, and
// the engine knows no experiment by name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/record.hpp"

namespace assay::network::saturate {

// A flow as its sender or its receiver sees it.
struct Lane {
    int flow;  // its number in the round
    int peer;
};

struct Round {
    enum class Kind { flows, echo };
    Kind kind;
    std::vector<std::pair<int, int>> pairs;  // of flows and echoes
    std::size_t size = 0;
    std::vector<std::size_t> sizes;  // of echoes
    double seconds = 0;
    std::int64_t count = 0;
    Json params;

    std::vector<Lane> leaving(int rank) const;
    std::vector<Lane> arriving(int rank) const;
};

// Throws Error for a line that is no round of these many ranks.
Round read_round(const std::string& line, int ranks);

}  // namespace assay::network::saturate
