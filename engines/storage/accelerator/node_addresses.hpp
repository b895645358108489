// On which of its addresses each node of a job listens. Every leader computes the same choice from
// what all of them have told.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace assay::storage {

// The IPv4 addresses of a node, in network byte order.
struct NodeAddresses {
    static constexpr std::uint32_t max_entries = 8;
    struct Entry {
        std::uint32_t host, mask;
    };
    std::uint64_t machine = 0;  // equal on two nodes in the same network namespace of one machine
    std::uint32_t count = 0;
    std::uint32_t chosen = 0;  // 1: the user has named the interface
    Entry entries[max_entries] = {};
};

// This node's. `interface`: the only one to take; empty: all that are up, and the loopback where
// there is no other. A count of 0: there is none.
NodeAddresses local_addresses(const std::string& interface);

// By node. The loopback if all nodes are one machine; else the first network that all nodes have,
// each with an address of its own (a bridge of containers has the same address everywhere); else
// the first address of each.
std::vector<std::uint32_t> choose_addresses(const std::vector<NodeAddresses>& nodes);

}  // namespace assay::storage
