// Reads the placement plan and applies it to new blocks with mbind(2).
#include "profile/numa/hooks/apply.hpp"

#include <fcntl.h>
#include <link.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "profile/numa/hooks/capture.hpp"
#include "profile/numa/hooks/ring.hpp"
#include "profile/numa/hooks/tracker.hpp"

namespace assay::numa {
namespace {

constexpr int max_entries = 256, max_depth = 64, max_parts = 64, max_nodes = 64;
constexpr std::uint64_t page_bytes = 4096;

enum class Action { interleave, bind, spread };

struct PlanEntry {
    std::uint64_t offset;
    Action action;
    int nodes[max_parts], parts;
    char module[512];
    std::uint64_t address;  // 0 until the module is loaded
};
PlanEntry* entries = nullptr;
int entry_count = 0;
int node_count = 0;

// Parses a line "OFFSET ACTION NODES MODULE". Returns false if it is malformed.
bool read_entry(char* line, PlanEntry& entry) {
    char* rest = nullptr;
    entry.offset = strtoull(line, &rest, 16);
    char* action = strtok_r(nullptr, " ", &rest);
    char* node = strtok_r(nullptr, " ", &rest);
    const char* module = strtok_r(nullptr, "\n", &rest);
    if (action == nullptr || node == nullptr || module == nullptr ||
        strlen(module) >= sizeof entry.module)
        return false;
    for (entry.parts = 0; entry.parts < max_parts && *node >= '0' && *node <= '9';) {
        const long number = strtol(node, &node, 10);
        if (number >= node_count) return false;
        entry.nodes[entry.parts++] = static_cast<int>(number);
        if (*node == ',') ++node;
    }
    strcpy(entry.module, module);
    entry.address = 0;
    if (strcmp(action, "interleave") == 0) entry.action = Action::interleave;
    else if (strcmp(action, "bind") == 0) entry.action = Action::bind;
    else if (strcmp(action, "spread") == 0) entry.action = Action::spread;
    else return false;
    return entry.parts > 0;
}

// Callback of dl_iterate_phdr: computes the call addresses of the entries of a loaded module.
int resolve_module(dl_phdr_info* object, size_t, void*) {
    char program_path[512];
    const char* name = object->dlpi_name;
    if (name == nullptr || *name == 0) {
        const ssize_t n = readlink("/proc/self/exe", program_path, sizeof program_path - 1);
        if (n <= 0) return 0;
        program_path[n] = 0;
        name = program_path;
    }
    for (int k = 0; k < entry_count; ++k)
        if (strcmp(entries[k].module, name) == 0)
            entries[k].address = object->dlpi_addr + entries[k].offset;
    return 0;
}

// The entry of the innermost call on the stack that is in the plan; null if there is none.
const PlanEntry* find_entry(stack::StackId stack) {
    for (int depth = 0; depth < max_depth && stack > stack::lost_root; ++depth) {
        const stack::Node node = stacks.node(stack);
        for (int k = 0; k < entry_count; ++k)
            if (entries[k].address == node.address) return &entries[k];
        stack = node.parent;
    }
    return nullptr;
}

// Sets the memory policy of an address range, or on emulated nodes only records it.
void set_policy(std::uint64_t begin, std::uint64_t end, int mode, std::uint64_t nodes) {
    if (begin >= end) return;
    auto* address = reinterpret_cast<void*>(begin);
    const unsigned long mask = nodes;
    if (!applies_policies() ||
        syscall(SYS_mbind, address, end - begin, mode, &mask, 65UL, MPOL_MF_MOVE) == 0)
        track_policy(address, end - begin, mode, nodes);
}

}  // namespace

void read_plan() {
    const char* path = getenv(plan_variable);
    const char* nodes = getenv("ASSAY_NUMA_NODES");
    if (path == nullptr || nodes == nullptr) return;
    node_count = static_cast<int>(strtol(nodes, nullptr, 10));
    entry_count = 0;
    FILE* file = node_count >= 1 && node_count <= max_nodes ? fopen(path, "re") : nullptr;
    if (file == nullptr) return;
    if (entries == nullptr)
        entries = static_cast<PlanEntry*>(map_zeroed(max_entries * sizeof(PlanEntry)));
    char line[1024];  // 64 nodes take 192 bytes
    while (entries != nullptr && entry_count < max_entries && fgets(line, sizeof line, file))
        if (read_entry(line, entries[entry_count])) ++entry_count;
    fclose(file);
    dl_iterate_phdr(resolve_module, nullptr);
}

void apply_plan(const void* block, std::size_t bytes, stack::StackId stack) {
    if (entry_count == 0) return;
    const PlanEntry* entry = find_entry(stack);
    if (entry == nullptr) return;
    const auto address = reinterpret_cast<std::uint64_t>(block);
    const std::uint64_t begin = (address + page_bytes - 1) & ~(page_bytes - 1),
                        end = (address + bytes) & ~(page_bytes - 1);
    if (begin >= end) return;
    if (entry->action == Action::interleave)
        return set_policy(begin, end, MPOL_INTERLEAVE,
                          ~std::uint64_t{0} >> (max_nodes - node_count));
    if (entry->action == Action::bind)
        return set_policy(begin, end, MPOL_BIND, std::uint64_t{1} << entry->nodes[0]);
    const auto parts = static_cast<std::uint64_t>(entry->parts);
    const std::uint64_t pages = (end - begin) / page_bytes;
    for (std::uint64_t k = 0; k < parts; ++k)
        set_policy(begin + pages * k / parts * page_bytes,
                   begin + pages * (k + 1) / parts * page_bytes, MPOL_BIND,
                   std::uint64_t{1} << entry->nodes[k]);
}

}  // namespace assay::numa
