// Reads the NUMA nodes from sysfs, or emulates nodes.
#include "profile/numa/record/topology.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

#include "core/error.hpp"

namespace assay::numa {
namespace {

constexpr int max_processor = 1 << 16;  // also limits the length of a list

std::string topology_line(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

std::uint64_t memory_of(int node) {
    std::ifstream file(fmt::format("/sys/devices/system/node/node{}/meminfo", node));
    for (std::string line; std::getline(file, line);) {
        const auto label = line.find("MemTotal:");
        if (label != std::string::npos)
            return std::strtoull(line.c_str() + label + 9, nullptr, 10) << 10;
    }
    return 0;
}

std::vector<int> all_processors() {
    std::vector<int> processors = parse_list(topology_line("/sys/devices/system/cpu/online"));
    if (processors.empty())
        for (int k = 0; k < sysconf(_SC_NPROCESSORS_ONLN); ++k) processors.push_back(k);
    return processors;
}

Topology emulate(int count) {
    if (count > max_nodes)
        throw Error(fmt::format("{} emulated nodes", count),
                    fmt::format("give at most {}", max_nodes));
    Topology topology{.nodes = {}, .emulated = true};
    const std::vector<int> processors = all_processors();
    for (int node = 0; node < count; ++node) {
        const auto begin = processors.size() * static_cast<std::size_t>(node) /
                           static_cast<std::size_t>(count),
                   end = processors.size() * (static_cast<std::size_t>(node) + 1) /
                         static_cast<std::size_t>(count);
        topology.nodes.push_back(
            {.id = node,
             .processors = {processors.begin() + static_cast<std::ptrdiff_t>(begin),
                            processors.begin() + static_cast<std::ptrdiff_t>(end)},
             .memory = 0,
             .distances = {}});
    }
    return topology;
}

}  // namespace

std::vector<int> parse_list(const std::string& text) {
    std::vector<int> numbers;
    std::istringstream parts(text);
    for (std::string part; std::getline(parts, part, ',');) {
        int first = 0, last = 0;
        const char *begin = part.c_str(), *end = begin + part.size();
        auto read = std::from_chars(begin, end, first);
        last = first;
        if (read.ec == std::errc() && read.ptr != end && *read.ptr == '-')
            read = std::from_chars(read.ptr + 1, end, last);
        if (read.ec != std::errc() || read.ptr != end || first < 0 || last < first ||
            last >= max_processor || numbers.size() > std::size_t{max_processor})
            return {};
        for (int k = first; k <= last; ++k) numbers.push_back(k);
    }
    return numbers;
}

int Topology::node_of(int processor) const {
    for (const Node& node : nodes)
        if (std::ranges::find(node.processors, processor) != node.processors.end()) return node.id;
    return -1;
}

Topology read_topology(int emulated) {
    if (emulated > 0) return emulate(emulated);
    Topology topology;
    for (const int id : parse_list(topology_line("/sys/devices/system/node/online"))) {
        if (id >= max_nodes) continue;
        const std::string folder = fmt::format("/sys/devices/system/node/node{}/", id);
        std::vector<int> distances;
        std::istringstream fields(topology_line(folder + "distance"));
        for (int distance = 0; fields >> distance;) distances.push_back(distance);
        topology.nodes.push_back({.id = id,
                                  .processors = parse_list(topology_line(folder + "cpulist")),
                                  .memory = memory_of(id),
                                  .distances = distances});
    }
    // No NUMA in this kernel: one node of all processors, at the distance to itself, 10.
    if (topology.nodes.empty())
        topology.nodes.push_back(
            {.id = 0, .processors = all_processors(), .memory = 0, .distances = {10}});
    return topology;
}

}  // namespace assay::numa
