// The NUMA nodes of this machine, or emulated ones in their place.
//
// Emulated nodes share the processors in equal, contiguous parts, and a page belongs to the node of
// the processor that touched it first, or to the one that its policy names. They say how a program
// would be placed, not how fast it would run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace assay::numa {

inline constexpr int max_nodes = 64;

struct Node {
    int id;
    std::vector<int> processors;
    std::uint64_t memory;        // bytes; 0 where it is emulated
    std::vector<int> distances;  // to each node, 10 to itself; empty if unknown
};

struct Topology {
    std::vector<Node> nodes;
    bool emulated = false;

    // -1 for a processor of no node.
    int node_of(int processor) const;
};

// Reads /sys/devices/system/node; with `emulated` > 0 makes up so many nodes. A machine without
// that folder is one node. Throws Error when there are more emulated nodes than max_nodes.
Topology read_topology(int emulated);

// Numbers of a list such as "0-3,8"; empty for one that is not well formed.
std::vector<int> parse_list(const std::string& text);

}  // namespace assay::numa
