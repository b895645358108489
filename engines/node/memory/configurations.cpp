// Cores and memory by their NUMA nodes. No core is left out: one without memory in its own node
// uses the nearest.
#include "node/memory/configurations.hpp"

#include <iterator>
#include <utility>

#include "core/error.hpp"
#include "core/numa.hpp"
#include "core/topology.hpp"

namespace assay::node {
namespace {

// Cores that use memory together, and the nodes with which they are measured. Cores without memory
// in their own node are measured with the nearest only, or with all where no node has both.
struct CoreGroup {
    std::optional<int> node;
    std::vector<int> cores;
    std::vector<int> memory_nodes;
    int nearest;  // the node whose memory they use when all cores work
};

std::vector<CoreGroup> core_groups() {
    std::vector<int> memory_nodes;
    for (const NumaNode& node : numa_nodes())
        if (node.bytes > 0) memory_nodes.push_back(node.number);
    std::vector<CoreGroup> groups;
    for (const NumaNode& node : numa_nodes())
        if (node.bytes > 0 && !node.cores.empty())
            groups.push_back({node.number, node.cores, memory_nodes, node.number});
    const bool has_local = !groups.empty();
    for (const RemoteCores& remote : cores_without_memory())
        groups.push_back({remote.node, remote.cores,
                          has_local ? std::vector{remote.memory} : memory_nodes, remote.memory});
    return groups;
}

}  // namespace

std::vector<Configuration> configurations() {
    const std::vector<CoreGroup> groups = core_groups();
    if (groups.empty())
        throw Error("no NUMA node has memory that this process may use",
                    "allow it memory (cpuset.mems of its control group, or numactl)");
    const std::size_t all_bytes = 4 * last_level_cache(), node_bytes = all_bytes / groups.size();
    std::vector<Configuration> list;
    const char* memory = cores_without_memory().empty() ? "local" : "nearest";
    Configuration all_cores{{}, {}, std::nullopt, memory, all_bytes};
    for (const CoreGroup& group : groups) {
        if (list.empty() && group.cores.size() > 1)
            list.push_back(
                {{group.cores[0]}, {group.nearest}, group.node, group.nearest, node_bytes});
        for (const int number : group.memory_nodes)
            list.push_back({group.cores, std::vector<int>(group.cores.size(), number), group.node,
                            number, node_bytes});
        std::ranges::copy(group.cores, std::back_inserter(all_cores.cores));
        all_cores.memory_nodes.resize(all_cores.cores.size(), group.nearest);
    }
    if (groups.size() > 1) list.push_back(std::move(all_cores));
    return list;
}

}  // namespace assay::node
