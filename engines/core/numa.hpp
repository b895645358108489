// Where the cores and the memory of this machine do not lie together: cores of nodes without memory
// (modules are missing, or cpuset.mems forbids it), and cores whose hardware threads are in several
// nodes. numa_nodes() of core/topology.hpp has the rest.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace assay {

// Cores without memory in their own node, and the node whose memory is nearest to them: by the
// kernel's table of distances (ACPI SLIT), else hwloc's, else the smallest part of the machine that
// has both.
struct RemoteCores {
    std::optional<int> node;  // their node; none: they are in none
    std::vector<int> cores;   // as bind_to_core() counts
    int memory;               // the number of the nearest node with memory
};
const std::vector<RemoteCores>& cores_without_memory();  // empty too if no node has memory

// "node 0 -> 1, no node -> 1": of cores_without_memory(), the nodes of the cores and of the memory.
std::string nearest_memory();

// Cores whose hardware threads the kernel puts into several nodes.
int cores_across_nodes();

}  // namespace assay
