// Reads the NUMA nodes of the machine, or emulates nodes. It runs inside the profiled program and
// does not use the C++ library.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profile/numa/exact/runtime.hpp"
#include "profile/numa/hooks/ring.hpp"

namespace assay::numa {

std::uint8_t processor_nodes[max_processors];

namespace {

unsigned emulated_nodes = 0, total_nodes = 0;
std::uint64_t node_mask = 0;

// Calls `handle` for each number of a list such as "0-3,8" in a file.
template <class Handle>
void for_each_number(const char* path, Handle handle) {
    char text[4096];
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    for (char* cursor = text; *cursor >= '0' && *cursor <= '9';) {
        const unsigned long first = strtoul(cursor, &cursor, 10);
        const unsigned long last = *cursor == '-' ? strtoul(cursor + 1, &cursor, 10) : first;
        for (unsigned long k = first; k <= last && k < max_processors; ++k)
            handle(static_cast<unsigned>(k));
        if (*cursor == ',') ++cursor;
    }
}

}  // namespace

void read_nodes() {
    memset(processor_nodes, unknown_node, sizeof processor_nodes);
    if (const char* node_setting = getenv(nodes_variable)) {
        const unsigned long count = strtoul(node_setting, nullptr, 10);
        emulated_nodes = count < max_real_nodes ? static_cast<unsigned>(count) : max_real_nodes;
    }
    unsigned online = 0, index = 0;
    for_each_number("/sys/devices/system/cpu/online", [&](unsigned) { ++online; });
    if (emulated_nodes > 0) {
        total_nodes = emulated_nodes;
        node_mask = (std::uint64_t{1} << total_nodes) - 1;
        // Node k begins at processor index k * online / total_nodes.
        for_each_number("/sys/devices/system/cpu/online", [&](unsigned processor) {
            unsigned node = 0;
            while (online * (node + 1) / total_nodes <= index) ++node;
            processor_nodes[processor] = static_cast<std::uint8_t>(node);
            ++index;
        });
        return;
    }
    for_each_number("/sys/devices/system/node/online", [&](unsigned node) {
        if (node >= max_real_nodes) return;
        node_mask |= std::uint64_t{1} << node;
        ++total_nodes;
        char path[64];
        snprintf(path, sizeof path, "/sys/devices/system/node/node%u/cpulist", node);
        for_each_number(path, [&](unsigned processor) {
            processor_nodes[processor] = static_cast<std::uint8_t>(node);
        });
    });
    if (total_nodes > 0) return;
    total_nodes = 1;
    node_mask = 1;
    memset(processor_nodes, 0, sizeof processor_nodes / 2);
}

bool is_emulated() { return emulated_nodes > 0; }
unsigned node_count() { return total_nodes; }
std::uint64_t all_nodes() { return node_mask; }

void write_nodes(Lines& lines) {
    static std::uint32_t processors[max_processors];
    for (unsigned node = 0; node < max_real_nodes; ++node) {
        if ((node_mask >> node & 1) == 0) continue;
        std::size_t count = 0;
        for (unsigned k = 0; k < max_processors; ++k)
            if (processor_nodes[k] == node) processors[count++] = k;
        lines.write("node", node, List<std::uint32_t>{processors, count}, std::uint64_t{0},
                    List<std::uint32_t>{processors, 0});
    }
}

}  // namespace assay::numa
