// The address on which each node of a job listens. All leaders compute the same choice from the
// addresses of all nodes.
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
    std::uint32_t interface_is_given = 0;  // 1: the user has named the interface
    Entry entries[max_entries] = {};
};

// The addresses of this node. `interface`: only this network interface counts; empty: all
// interfaces that are up, or the loopback if there is no other. `count` is 0 if there is no
// address.
NodeAddresses local_addresses(const std::string& interface);

// The address of each node: the loopback if all nodes are on one machine; else the addresses in the
// first network that all nodes have, each with an address of its own (a container bridge has the
// same address on every machine); else the first address of each node.
std::vector<std::uint32_t> choose_addresses(const std::vector<NodeAddresses>& nodes);

}  // namespace assay::storage
