// Reads the available memory from /proc/meminfo and the limits of the process's control groups
// (cgroup v1 and v2) from /sys/fs/cgroup.
#include "storage/store/available_memory.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace assay::storage {
namespace {

std::vector<std::string> read_lines(const std::string& path) {
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

// The number after `field` on the line that begins with it; 0 if the file has no such line.
std::uint64_t read_number(const std::string& path, std::string_view field) {
    for (const auto& line : read_lines(path))
        if (line.starts_with(field)) return std::strtoull(line.c_str() + field.size(), nullptr, 10);
    return 0;
}

// The files of a control group, and the field of memory.stat that counts inactive file pages.
struct GroupFiles {
    const char *limit, *usage, *inactive_field;
};
constexpr GroupFiles cgroup_v2{"/memory.max", "/memory.current", "inactive_file "};
constexpr GroupFiles cgroup_v1{"/memory.limit_in_bytes", "/memory.usage_in_bytes",
                               "total_inactive_file "};

// Bytes that the group may still use; ~0 if it has no limit ("max") or does not exist.
std::uint64_t unused_in_group(const std::string& group, const GroupFiles& files) {
    const auto limit_text = read_lines(group + files.limit);
    if (limit_text.empty() || limit_text[0] == "max") return ~0ull;
    const std::uint64_t limit = std::strtoull(limit_text[0].c_str(), nullptr, 10);
    const std::uint64_t usage = read_number(group + files.usage, "");
    const std::uint64_t inactive = read_number(group + "/memory.stat", files.inactive_field);
    const std::uint64_t used = usage - std::min(usage, inactive);
    return limit - std::min(limit, used);
}

// The minimum over the group and its parents, because all their limits hold. In a container the
// path may be that of the host: then only the root group exists, which is the container's.
std::uint64_t unused_in_ancestors(const std::string& mount, std::string path,
                                  const GroupFiles& files) {
    std::uint64_t unused = ~0ull;
    for (;;) {
        unused = std::min(unused, unused_in_group(mount + path, files));
        if (path.empty()) return unused;
        path.erase(std::min(path.find_last_of('/'), path.size()));
    }
}

// The minimum over all groups of this process. Lines of /proc/self/cgroup are "0::PATH" for version
// 2 and "NUMBER:CONTROLLERS:PATH" for version 1.
std::uint64_t unused_in_groups(const std::string& root) {
    const std::string mount = root + "/sys/fs/cgroup";
    std::uint64_t unused = ~0ull;
    for (const auto& line : read_lines(root + "/proc/self/cgroup")) {
        const auto first = line.find(':'), second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
        const std::string path = line.substr(second + 1);
        if (line.starts_with("0::"))
            unused = std::min(unused, unused_in_ancestors(mount, path, cgroup_v2));
        else if (controllers.find(",memory,") != std::string::npos)
            unused = std::min(unused, unused_in_ancestors(mount + "/memory", path, cgroup_v1));
    }
    return unused;
}

}  // namespace

std::uint64_t available_memory(const std::string& root) {
    const std::uint64_t machine = read_number(root + "/proc/meminfo", "MemAvailable:") << 10;
    return std::min(machine, unused_in_groups(root));
}

}  // namespace assay::storage
