// Reads the available memory from /proc/meminfo and the limits of the process's control groups from
// /sys/fs/cgroup. A batch system limits a job by such a group, so the machine's figure alone
// promises memory whose use ends the job.
#include "machine/available_memory.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace assay {
namespace {

constexpr std::uint64_t unlimited = ~std::uint64_t{0};
constexpr std::size_t path_bytes = 8192;

// A small file of /proc or /sys; empty if it cannot be read.
class File {
public:
    explicit File(const char* path) {
        const int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) return;
        std::size_t length = 0;
        for (ssize_t n = 1; n > 0 && length < sizeof text_ - 1;
             length += n > 0 ? std::size_t(n) : 0)
            n = read(fd, text_ + length, sizeof text_ - 1 - length);
        text_[length] = 0;
        close(fd);
    }

    // The number after `name` at the beginning of a line; `missing` if there is none ("max").
    std::uint64_t number(const char* name, std::uint64_t missing) const {
        const std::size_t length = std::strlen(name);
        for (const char* line = text_; *line != 0; line = next(line)) {
            if (std::strncmp(line, name, length) != 0) continue;
            const char* digits = line + length + std::strspn(line + length, " \t");
            return *digits >= '0' && *digits <= '9' ? std::strtoull(digits, nullptr, 10) : missing;
        }
        return missing;
    }

    char* text() { return text_; }

private:
    static const char* next(const char* line) {
        const char* end = std::strchr(line, '\n');
        return end == nullptr ? line + std::strlen(line) : end + 1;
    }
    char text_[16384] = {};
};

// What a version of control groups calls its files, and the lines of memory.stat that count what
// the kernel can drop (those of version 1 that begin with total_ include the groups below).
struct Version {
    const char* folder;
    const char* limits[2];
    const char* usage;
    const char* reclaimable[3];
};
constexpr Version version_2{"/sys/fs/cgroup",
                            {"memory.max", "memory.high"},
                            "memory.current",
                            {"inactive_file ", "active_file ", "slab_reclaimable "}};
constexpr Version version_1{"/sys/fs/cgroup/memory",
                            {"memory.limit_in_bytes", nullptr},
                            "memory.usage_in_bytes",
                            {"total_inactive_file ", "total_active_file ", nullptr}};

// Bytes that the group in `folder` may still use; `unlimited` if it has no limit or does not exist.
std::uint64_t unused_in_group(const char* folder, const Version& version) {
    char path[path_bytes + 64];
    const auto in_folder = [&](const char* name) {
        std::snprintf(path, sizeof path, "%s/%s", folder, name);
        return path;
    };
    std::uint64_t limit = unlimited;
    for (const char* name : version.limits)
        if (name != nullptr) limit = std::min(limit, File(in_folder(name)).number("", unlimited));
    if (limit == unlimited) return unlimited;
    const std::uint64_t usage = File(in_folder(version.usage)).number("", 0);
    const File counts(in_folder("memory.stat"));
    std::uint64_t reclaimable = 0;
    for (const char* name : version.reclaimable)
        if (name != nullptr) reclaimable += counts.number(name, 0);
    const std::uint64_t used = usage - std::min(usage, reclaimable);
    return limit - std::min(limit, used);
}

// The minimum over the group and those above. In a container the path may be that of the host: then
// only the root group exists, which is the container's. Shortens `group`.
std::uint64_t unused_in_groups(const char* root, char* group, const Version& version) {
    std::uint64_t unused = unlimited;
    for (;;) {
        char folder[path_bytes];
        std::snprintf(folder, sizeof folder, "%s%s%s", root, version.folder, group);
        unused = std::min(unused, unused_in_group(folder, version));
        char* slash = std::strrchr(group, '/');
        if (slash == nullptr) return unused;
        *slash = 0;
    }
}

// Whether "memory" is one of the controllers, which commas separate.
bool has_memory(const char* controllers) {
    const char* found = std::strstr(controllers, "memory");
    return found != nullptr && (found == controllers || found[-1] == ',') &&
           (found[6] == 0 || found[6] == ',');
}

// The minimum over all groups of this process. A line of /proc/self/cgroup is "0::PATH" for version
// 2 and "NUMBER:CONTROLLERS:PATH" for version 1.
std::uint64_t unused_in_all_groups(const char* root) {
    char path[path_bytes];
    std::snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    File file(path);
    std::uint64_t unused = unlimited;
    char* rest = nullptr;
    for (char* line = strtok_r(file.text(), "\n", &rest); line != nullptr;
         line = strtok_r(nullptr, "\n", &rest)) {
        char* controllers = std::strchr(line, ':');
        char* group = controllers == nullptr ? nullptr : std::strchr(controllers + 1, ':');
        if (group == nullptr) continue;
        *group++ = 0;
        if (*++controllers == 0)
            unused = std::min(unused, unused_in_groups(root, group, version_2));
        else if (has_memory(controllers))
            unused = std::min(unused, unused_in_groups(root, group, version_1));
    }
    return unused;
}

}  // namespace

std::uint64_t available_memory(const char* root) {
    char path[path_bytes];
    std::snprintf(path, sizeof path, "%s/proc/meminfo", root);
    const std::uint64_t kilobytes = File(path).number("MemAvailable:", unlimited >> 10);
    return std::min(kilobytes << 10, unused_in_all_groups(root));
}

std::uint64_t available_memory() {
    const char* root = std::getenv("ASSAY_ROOT");
    return available_memory(root == nullptr ? "" : root);
}

}  // namespace assay
