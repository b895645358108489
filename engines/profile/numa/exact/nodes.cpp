// The nodes of the machine, or emulated ones, read without the C++ library: this runs in the
// program.
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

unsigned emulated = 0, total = 0;
std::uint64_t node_mask = 0;

// Calls `take` for each number of a list such as "0-3,8" in a file.
template <class Take>
void each_number(const char* path, Take take) {
    char text[4096];
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    for (char* at = text; *at >= '0' && *at <= '9';) {
        const unsigned long first = strtoul(at, &at, 10);
        const unsigned long last = *at == '-' ? strtoul(at + 1, &at, 10) : first;
        for (unsigned long k = first; k <= last && k < max_processors; ++k)
            take(static_cast<unsigned>(k));
        if (*at == ',') ++at;
    }
}

}  // namespace

void read_nodes() {
    memset(processor_nodes, unknown_node, sizeof processor_nodes);
    if (const char* wanted = getenv(nodes_variable)) {
        const unsigned long count = strtoul(wanted, nullptr, 10);
        emulated = count < max_real_nodes ? static_cast<unsigned>(count) : max_real_nodes;
    }
    unsigned online = 0, index = 0;
    each_number("/sys/devices/system/cpu/online", [&](unsigned) { ++online; });
    if (emulated > 0) {
        total = emulated;
        node_mask = (std::uint64_t{1} << total) - 1;
        // Equal contiguous parts: part k ends where k * online / total does.
        each_number("/sys/devices/system/cpu/online", [&](unsigned processor) {
            unsigned node = 0;
            while (online * (node + 1) / total <= index) ++node;
            processor_nodes[processor] = static_cast<std::uint8_t>(node);
            ++index;
        });
        return;
    }
    each_number("/sys/devices/system/node/online", [&](unsigned node) {
        if (node >= max_real_nodes) return;
        node_mask |= std::uint64_t{1} << node;
        ++total;
        char path[64];
        snprintf(path, sizeof path, "/sys/devices/system/node/node%u/cpulist", node);
        each_number(path, [&](unsigned processor) {
            processor_nodes[processor] = static_cast<std::uint8_t>(node);
        });
    });
    if (total > 0) return;
    total = 1;
    node_mask = 1;
    memset(processor_nodes, 0, sizeof processor_nodes / 2);
}

bool is_emulated() { return emulated > 0; }
unsigned node_total() { return total; }

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
