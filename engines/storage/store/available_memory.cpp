#include "storage/store/available_memory.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace assay::storage {
namespace {

std::vector<std::string> lines_of(const std::string& path) {
    std::vector<std::string> lines;
    if (FILE* file = std::fopen(path.c_str(), "r")) {
        char text[4352];
        while (std::fgets(text, sizeof text, file)) {
            lines.emplace_back(text);
            if (lines.back().ends_with('\n')) lines.back().pop_back();
        }
        std::fclose(file);
    }
    return lines;
}

// The number after `field` in a file of fields; 0: there is none.
std::uint64_t number_after(const std::string& path, std::string_view field) {
    for (const auto& line : lines_of(path))
        if (line.starts_with(field)) return std::strtoull(line.c_str() + field.size(), nullptr, 10);
    return 0;
}

// Where a version of control groups keeps its numbers.
struct GroupFiles {
    const char *limit, *usage, *inactive;
};
constexpr GroupFiles version2{"/memory.max", "/memory.current", "inactive_file "};
constexpr GroupFiles version1{"/memory.limit_in_bytes", "/memory.usage_in_bytes",
                              "total_inactive_file "};

// ~0: the group has no limit ("max"), or is not there.
std::uint64_t unused_in_group(const std::string& group, const GroupFiles& names) {
    const auto limit_text = lines_of(group + names.limit);
    if (limit_text.empty() || limit_text[0] == "max") return ~0ull;
    const std::uint64_t limit = std::strtoull(limit_text[0].c_str(), nullptr, 10);
    const std::uint64_t usage = number_after(group + names.usage, "");
    const std::uint64_t inactive = number_after(group + "/memory.stat", names.inactive);
    const std::uint64_t used = usage - std::min(usage, inactive);
    return limit - std::min(limit, used);
}

// The limits of all parents hold too. In a container the path may be the host's: then only the root
// is there, which is the container's group.
std::uint64_t unused_in_ancestors(const std::string& mount, std::string path,
                                  const GroupFiles& names) {
    std::uint64_t unused = ~0ull;
    for (;;) {
        unused = std::min(unused, unused_in_group(mount + path, names));
        if (path.empty()) return unused;
        path.erase(std::min(path.find_last_of('/'), path.size()));
    }
}

// Lines are "0::PATH" for version 2 and "NUMBER:CONTROLLERS:PATH" for version 1.
std::uint64_t unused_in_groups(const std::string& root) {
    const std::string mount = root + "/sys/fs/cgroup";
    std::uint64_t unused = ~0ull;
    for (const auto& line : lines_of(root + "/proc/self/cgroup")) {
        const auto first = line.find(':'), second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
        const std::string path = line.substr(second + 1);
        if (line.starts_with("0::"))
            unused = std::min(unused, unused_in_ancestors(mount, path, version2));
        else if (controllers.find(",memory,") != std::string::npos)
            unused = std::min(unused, unused_in_ancestors(mount + "/memory", path, version1));
    }
    return unused;
}

}  // namespace

std::uint64_t available_memory(const std::string& root) {
    const std::uint64_t machine = number_after(root + "/proc/meminfo", "MemAvailable:") << 10;
    return std::min(machine, unused_in_groups(root));
}

}  // namespace assay::storage
