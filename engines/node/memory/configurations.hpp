// Which cores node.memory measures with the memory of which nodes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "core/record.hpp"
#include "node/memory/kernels.hpp"

namespace assay::node {

// A choice of cores and of the memory that they use.
struct Configuration {
    std::vector<int> cores, memory_nodes;  // of each thread
    std::optional<int> node;               // the node of the cores; none: all nodes
    Json memory_node;   // as recorded: the node's number; of all cores "local" or "nearest"
    std::size_t bytes;  // in each of the three arrays

    // Doubles of each array that a thread uses.
    std::size_t length() const {
        return std::max<std::size_t>(bytes / sizeof(double) / cores.size() / kernel_step, 1) *
               kernel_step;
    }
    // Whether the memory is that of another node than the cores'.
    bool is_remote() const {
        return memory_node.is_number() && memory_node != Json(node.value_or(-1));
    }
    std::size_t threads_on(int memory) const {
        return static_cast<std::size_t>(std::ranges::count(memory_nodes, memory));
    }
};

// One core of the first group with the nearest memory; the cores of each node with the memory of
// each node; all cores, each with the memory of its own node or else the nearest. Throws Error
// where no node has memory.
std::vector<Configuration> configurations();

}  // namespace assay::node
