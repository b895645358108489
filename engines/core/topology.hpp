// This host's processors, NUMA nodes, memory and kernel (hwloc, /proc, /sys), and binding to them.
#pragma once

#include <string>
#include <vector>

#include "core/record.hpp"

namespace assay {

std::string host_name();

// Facts of this host by dotted name: "cpu.model", "memory.bytes", ... (see core/facts.hpp).
Json host_facts();

int core_count();                // physical cores that this process may use
std::size_t last_level_cache();  // bytes, sum over the host; 32 MiB if unknown
void bind_to_core(int index);    // binds the calling thread to a usable physical core

// A NUMA node and the indices of its usable physical cores; a node with memory only has none.
struct NumaNode {
    int number;  // as the operating system numbers it
    std::vector<int> cores;
    std::size_t bytes;
};
const std::vector<NumaNode>& numa_nodes();
void bind_to_node(const NumaNode&);  // binds the calling thread to the node's cores

// Page-aligned memory on one NUMA node, with huge pages requested. Its pages are not touched yet.
class NodeMemory {
public:
    static constexpr int any = -1;  // each page on the node of the thread that touches it first

    NodeMemory(std::size_t bytes, int node);
    ~NodeMemory();
    NodeMemory(NodeMemory&& other) noexcept;
    NodeMemory(const NodeMemory&) = delete;
    NodeMemory& operator=(const NodeMemory&) = delete;

    void* data() const { return data_; }
    std::size_t size() const { return bytes_; }
    // Whether a sample of the touched pages is on `node`; true if the kernel does not say.
    bool is_on_node(int node) const;

private:
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

// Prefixes a path of this machine with $ASSAY_ROOT, "/" by default, so that tests can provide the
// files of another machine. sysfs() and procfs() take paths relative to /sys and /proc.
std::string under_root(const std::string& path);
std::string sysfs(const std::string& path);
std::string procfs(const std::string& path);
// The file's first line without trailing white space; empty if it cannot be read.
std::string read_line(const std::string& path);
// The names in a folder, sorted; empty if it cannot be read.
std::vector<std::string> entries(const std::string& folder);

}  // namespace assay
