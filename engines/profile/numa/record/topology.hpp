// The NUMA nodes of this machine, or emulated ones in their place.
//
// Emulated nodes share the processors in equal, contiguous parts, and a page belongs to the node of
// the processor that touches it first, or to a node that its memory policy names. They show how the
// memory of a program would be placed, not how fast the program would run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace assay::numa {

inline constexpr int max_nodes = 64;

struct Node {
    int id;
    std::vector<int> processors;
    std::uint64_t memory;        // bytes; 0 for an emulated node
    std::vector<int> distances;  // to each node, 10 to itself; empty if unknown
};

struct Topology {
    std::vector<Node> nodes;
    bool emulated = false;

    // The node of a processor, -1 if it belongs to none.
    int node_of(int processor) const;
};

// Reads /sys/devices/system/node; with `emulated` > 0 emulates that number of nodes instead. A
// machine without that folder is one node. Throws Error if `emulated` exceeds max_nodes.
Topology read_topology(int emulated);

// Parses a list of numbers such as "0-3,8"; returns an empty vector if it is malformed.
std::vector<int> parse_list(const std::string& text);

}  // namespace assay::numa
