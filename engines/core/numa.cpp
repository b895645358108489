// The NUMA nodes of this machine, and which cores belong to them. The kernel's lists decide where
// they are known: hwloc leaves out nodes without memory, and gives memory without processors those
// of the part of the machine around it.
#include "core/numa.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>

#include "core/hwloc.hpp"
#include "core/topology.hpp"

namespace assay {
namespace {

struct FreeBitmap {
    void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

struct Node {
    int number;
    std::size_t bytes;
    Bitmap processors;
};

// The distance from node to node, by their numbers; without those that are unknown.
using Distances = std::map<std::pair<int, int>, std::uint64_t>;

hwloc_obj_t object(hwloc_obj_type_t type, int index) {
    return hwloc_get_obj_by_type(hwloc_of_this_machine(), type, static_cast<unsigned>(index));
}

int count(hwloc_obj_type_t type) { return hwloc_get_nbobjs_by_type(hwloc_of_this_machine(), type); }

std::vector<Node> nodes_of_hwloc() {
    std::vector<Node> nodes;
    for (int i = 0; i < count(HWLOC_OBJ_NUMANODE); ++i) {
        hwloc_obj_t node = object(HWLOC_OBJ_NUMANODE, i);
        nodes.push_back({static_cast<int>(node->os_index), node->attr->numanode.local_memory,
                         Bitmap(hwloc_bitmap_dup(node->cpuset))});
    }
    return nodes;
}

// The numbers of the kernel's nodes in rising order, which is that of a row of distances.
std::vector<int> numbers_of_kernel() {
    std::vector<int> numbers;
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator(sysfs("devices/system/node"), error)) {
        const std::string name = entry.path().filename();
        int number = 0;
        const char* end = name.data() + name.size();
        if (name.starts_with("node") &&
            std::from_chars(name.data() + 4, end, number) == std::from_chars_result{end, {}})
            numbers.push_back(number);
    }
    std::ranges::sort(numbers);
    return numbers;
}

std::string file_of_node(int number, const char* name) {
    return sysfs(fmt::format("devices/system/node/node{}/{}", number, name));
}

class Machine {
public:
    Machine() : known_(nodes_of_hwloc()) {
        for (const Node& node : known_) nodes.push_back({node.number, {}, node.bytes});
        read_distances_of_hwloc();
        if (kernel_describes_machine()) read_kernel();
        for (int core = 0; core < count(HWLOC_OBJ_CORE); ++core) assign(core);
    }

    std::vector<NumaNode> nodes;  // those of hwloc, in its order
    std::vector<RemoteCores> remote;
    int across = 0;

private:
    void read_distances_of_hwloc() {
        hwloc_distances_s* found = nullptr;
        unsigned matrices = 1;
        if (hwloc_distances_get_by_type(hwloc_of_this_machine(), HWLOC_OBJ_NUMANODE, &matrices,
                                        &found, HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0) != 0 ||
            matrices == 0)
            return;
        for (unsigned i = 0; i < found->nbobjs; ++i)
            for (unsigned j = 0; j < found->nbobjs; ++j)
                distances_[{found->objs[i]->os_index, found->objs[j]->os_index}] =
                    found->values[i * found->nbobjs + j];
        hwloc_distances_release(hwloc_of_this_machine(), found);
    }

    // The kernel's processors of each node, also of nodes that hwloc leaves out, and its distances.
    void read_kernel() {
        const std::vector<int> numbers = numbers_of_kernel();
        for (const int number : numbers) {
            auto node = std::ranges::find(known_, number, &Node::number);
            if (node == known_.end())
                node = known_.insert(node, {number, 0, Bitmap(hwloc_bitmap_alloc())});
            if (std::filesystem::exists(file_of_node(number, "cpulist")))
                hwloc_bitmap_list_sscanf(node->processors.get(),
                                         read_line(file_of_node(number, "cpulist")).c_str());
            std::istringstream row(read_line(file_of_node(number, "distance")));
            const std::vector<std::uint64_t> distances(std::istream_iterator<std::uint64_t>{row},
                                                       {});
            if (distances.size() != numbers.size()) continue;
            for (std::size_t k = 0; k < numbers.size(); ++k)
                distances_[{number, numbers[k]}] = distances[k];
        }
    }

    // Gives a core to the node of its first processor, to which its threads are bound.
    void assign(int core) {
        hwloc_obj_t found = object(HWLOC_OBJ_CORE, core);
        const auto first = static_cast<unsigned>(hwloc_bitmap_first(found->cpuset));
        const auto home = std::ranges::find_if(known_, [&](const Node& node) {
            return hwloc_bitmap_isset(node.processors.get(), first) != 0;
        });
        std::optional<int> number;
        if (home != known_.end()) {
            number = home->number;
            across += hwloc_bitmap_isincluded(found->cpuset, home->processors.get()) == 0;
            const auto node = std::ranges::find(nodes, *number, &NumaNode::number);
            if (node != nodes.end()) node->cores.push_back(core);
            if (home->bytes > 0) return;
        }
        const std::optional<int> memory = nearest(found, number);
        if (!memory) return;
        auto group = std::ranges::find_if(remote, [&](const RemoteCores& cores) {
            return cores.node == number && cores.memory == *memory;
        });
        if (group == remote.end()) group = remote.insert(group, {number, {}, *memory});
        group->cores.push_back(core);
    }

    // The node whose memory is nearest to a core of node `number`; of several, the one that shares
    // the smallest part of the machine with it.
    std::optional<int> nearest(hwloc_obj_t core, std::optional<int> number) const {
        std::optional<int> best;
        std::pair<std::uint64_t, int> least;
        for (const NumaNode& node : nodes) {
            if (node.bytes == 0) continue;
            const auto known = number ? distances_.find({*number, node.number}) : distances_.end();
            const std::pair key{known != distances_.end() ? known->second : ~std::uint64_t{0},
                                steps_up(core, node.number)};
            if (!best || key < least) best = node.number, least = key;
        }
        return best;
    }

    // How far up in hwloc's tree the first object is that contains both the core and the node.
    static int steps_up(hwloc_obj_t core, int number) {
        int steps = 0;
        for (hwloc_obj_t part = core; part != nullptr; part = part->parent, ++steps)
            if (part->nodeset != nullptr &&
                hwloc_bitmap_isset(part->nodeset, static_cast<unsigned>(number)) != 0)
                return steps;
        return steps;
    }

    std::vector<Node> known_;  // those of hwloc and of the kernel
    Distances distances_;
};

// Read once, as the topology is.
const Machine& machine() {
    static const Machine read;
    return read;
}

}  // namespace

const std::vector<NumaNode>& numa_nodes() { return machine().nodes; }

const std::vector<RemoteCores>& cores_without_memory() { return machine().remote; }

int cores_across_nodes() { return machine().across; }

std::string nearest_memory() {
    std::string text;
    for (const RemoteCores& cores : cores_without_memory())
        text +=
            fmt::format("{}{} -> {}", text.empty() ? "" : ", ",
                        cores.node ? fmt::format("node {}", *cores.node) : "no node", cores.memory);
    return text;
}

}  // namespace assay
