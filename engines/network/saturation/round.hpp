// What one round of the saturation experiments is, as the conductor writes it: one line of JSON.
//
//     {"flows": [[0,4],[4,0]], "size": 1048576, "seconds": 0.5, "params": {"experiment": "host"}}
//     {"all_to_all": [0,1,2,3], "size": 65536, "messages": 300, "params": {}}
//     {"echo": [[0,1],[0,2]], "sizes": [1,1024], "count": 20, "params": {}}
//
// Flows run at the same time, each from one rank to another; a pair that sends both ways is two flows, a ring
// of four is four. "seconds" is what is measured; what all take is half as much again. In an all-to-all every rank goes round the others, message by message. Echoes are pairs that
// play ping-pong, one pair after the other. "params" come back in the records, so that the conductor knows its
// own rounds again, and the engine knows no experiment by name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/record.hpp"

namespace assay::network::saturate {

// What leaves a rank, or arrives there: message i goes to (or comes from) peers[i modulo their number].
struct Lane {
    int flow;  // its number in the round; of an all-to-all, the receiver's
    std::vector<int> peers;
    std::int64_t messages;  // 0: as many as the sender's time allows
};

struct Round {
    enum class Kind { flows, all_to_all, echo };
    Kind kind;
    std::vector<std::pair<int, int>> pairs;  // of flows and echoes
    std::vector<int> ranks;                  // of an all-to-all, in its order
    std::size_t size = 0;
    std::vector<std::size_t> sizes;  // of echoes
    double seconds = 0;
    std::int64_t messages = 0, count = 0;
    Json params;

    std::size_t flows() const { return kind == Kind::all_to_all ? ranks.size() : pairs.size(); }
    std::vector<Lane> leaving(int rank) const;
    std::vector<Lane> arriving(int rank) const;
    int source(std::size_t flow) const { return kind == Kind::all_to_all ? -1 : pairs[flow].first; }
    int target(std::size_t flow) const { return kind == Kind::all_to_all ? ranks[flow] : pairs[flow].second; }
};

// Throws Error for a line that is no round of these many ranks.
Round read_round(const std::string& line, int ranks);

}  // namespace assay::network::saturate
