// What this host is: processors, NUMA nodes, memory, kernel (hwloc, /proc, /sys).
#pragma once

#include <string>
#include <vector>

#include "core/record.hpp"

namespace assay {

std::string host_name();

// Facts of this host with dotted keys: "cpu.model", "cpu.cores", "memory.bytes", "kernel.release"
// ...
Json host_facts();

int core_count();                // physical cores that this process may use
std::size_t last_level_cache();  // bytes, the sum over this host; 32 MiB when unknown
std::size_t available_memory();  // bytes, MemAvailable
void bind_to_core(int index);    // the calling thread, to the index-th usable physical core

// A memory node and the usable physical cores that it is local to; none of a node that is memory
// only.
struct NumaNode {
    int number;  // the operating system's
    std::vector<int> cores;
    std::size_t bytes;
};
const std::vector<NumaNode>& numa_nodes();
void bind_to_node(const NumaNode&);  // the calling thread, to any core of the node

// Memory on one NUMA node, page-aligned, with huge pages asked for; it is touched by whoever uses
// it first.
class NodeMemory {
public:
    static constexpr int any = -1;  // where it is touched first

    NodeMemory(std::size_t bytes, int node);
    ~NodeMemory();
    NodeMemory(NodeMemory&& other) noexcept;
    NodeMemory(const NodeMemory&) = delete;
    NodeMemory& operator=(const NodeMemory&) = delete;

    void* data() const { return data_; }
    std::size_t size() const { return bytes_; }
    bool lies_on(
        int node) const;  // of the touched pages, a sample; true where the kernel cannot say

private:
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

// The root of /sys and /proc is injectable ($ASSAY_ROOT, "/" by default) so that tests can plant a
// machine.
std::string sysfs(const std::string& path);
std::string procfs(const std::string& path);
// The file's first line without trailing white space; empty when it cannot be read.
std::string read_line(const std::string& path);

}  // namespace assay
