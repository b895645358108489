// Reads the available memory from /proc/meminfo and the limits of the process's control groups. A
// batch system limits a job by such a group, so the machine's figure alone promises memory whose
// use ends the job.
#include "machine/available_memory.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "machine/control_groups.hpp"

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
    const char* limits[2];
    const char* usage;
    const char* reclaimable[3];
};
constexpr Version version_2{{"memory.max", "memory.high"},
                            "memory.current",
                            {"inactive_file ", "active_file ", "slab_reclaimable "}};
constexpr Version version_1{{"memory.limit_in_bytes", nullptr},
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

// Lowers the least amount that was seen so far, `data`, by what a group may still use.
void lower_by_group(void* data, const char* folder, bool is_unified) {
    auto& unused = *static_cast<std::uint64_t*>(data);
    unused = std::min(unused, unused_in_group(folder, is_unified ? version_2 : version_1));
}

}  // namespace

std::uint64_t available_memory(const char* root) {
    char path[path_bytes];
    std::snprintf(path, sizeof path, "%s/proc/meminfo", root);
    const File machine(path);
    // A kernel before 3.14 does not estimate it: what is idle, and the file cache without tmpfs.
    constexpr std::uint64_t unknown = unlimited >> 10;
    const std::uint64_t idle = machine.number("MemFree:", unknown);
    const std::uint64_t cache = machine.number("Buffers:", 0) + machine.number("Cached:", 0);
    const std::uint64_t dropped = cache - std::min(cache, machine.number("Shmem:", 0));
    const std::uint64_t kilobytes =
        machine.number("MemAvailable:", idle == unknown ? unknown : idle + dropped);
    std::uint64_t unused = unlimited;
    for_each_group(root, "memory", lower_by_group, &unused);
    return std::min(kilobytes << 10, unused);
}

std::uint64_t available_memory() {
    const char* root = std::getenv("ASSAY_ROOT");
    return available_memory(root == nullptr ? "" : root);
}

}  // namespace assay
