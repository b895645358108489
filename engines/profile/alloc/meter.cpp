#include "profile/alloc/meter.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace assay::alloc {
namespace {

constexpr std::uint64_t unlimited = ~std::uint64_t{0};

// The whole of a small file in /proc or /sys; false when it cannot be read.
template <std::size_t N>
bool read_file(const char* path, char (&into)[N]) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    std::size_t have = 0;
    for (ssize_t n = 1; n > 0 && have < N - 1;
         have += static_cast<std::size_t>(std::max<ssize_t>(n, 0)))
        n = read(fd, into + have, N - 1 - have);
    into[have] = 0;
    close(fd);
    return have > 0;
}

// The kilobytes after "\nName:", in bytes; 0 when there is no such line.
std::uint64_t field(const char* text, const char* name) {
    const char* at = std::strstr(text, name);
    return at == nullptr ? 0 : std::strtoull(at + std::strlen(name), nullptr, 10) << 10;
}

// A number in a file; unlimited for "max" and for what is not there.
std::uint64_t number(const char* path) {
    char text[64];
    if (!read_file(path, text) || text[0] < '0' || text[0] > '9') return unlimited;
    return std::strtoull(text, nullptr, 10);
}

// Bytes that a control group holds of files, which it gives up when it needs room.
std::uint64_t reclaimable(const char* folder) {
    char path[1024], text[8192];
    std::snprintf(path, sizeof path, "%s/memory.stat", folder);
    if (!read_file(path, text)) return 0;
    const char* at = std::strstr(text, "\ninactive_file ");
    return at == nullptr ? 0 : std::strtoull(at + sizeof "\ninactive_file", nullptr, 10);
}

// What is left below the limits of a control group and of those above it.
std::uint64_t left_in_group(const char* root, char* group, const char* limit_file,
                            const char* used_file) {
    std::uint64_t left = unlimited;
    char folder[768], path[1024];
    for (;;) {
        std::snprintf(folder, sizeof folder, "%s%s", root, group);
        std::snprintf(path, sizeof path, "%s/%s", folder, limit_file);
        const std::uint64_t limit = number(path);
        std::snprintf(path, sizeof path, "%s/%s", folder, used_file);
        const std::uint64_t used = number(path);
        if (limit != unlimited && used != unlimited) {
            const std::uint64_t free = limit > used ? limit - used : 0;
            left = std::min(left, free + std::min(used, reclaimable(folder)));
        }
        char* cut = std::strrchr(group, '/');
        if (cut == nullptr) return left;
        *cut = 0;
    }
}

}  // namespace

double measured_tick() {
    constexpr Nanoseconds long_enough = 20'000'000;
    const Nanoseconds begin = now();
    const std::uint64_t first = ticks();
    while (now() - begin < long_enough) {
    }
    const std::uint64_t last = ticks();
    return seconds(now() - begin) / static_cast<double>(last - first);
}

Resident resident() {
    char text[4096];
    if (!read_file("/proc/self/smaps_rollup", text)) return {0, 0};
    const std::uint64_t hugetlb =
        field(text, "\nPrivate_Hugetlb:") + field(text, "\nShared_Hugetlb:");
    return {field(text, "\nAnonymous:") + field(text, "\nPss_Shmem:") + hugetlb,
            field(text, "\nAnonHugePages:") + field(text, "\nShmemPmdMapped:") + hugetlb};
}

std::uint64_t memory_left() {
    char text[8192];
    std::uint64_t left =
        read_file("/proc/meminfo", text) ? field(text, "\nMemAvailable:") : unlimited;
    if (!read_file("/proc/self/cgroup", text)) return left;
    for (char* line = std::strtok(text, "\n"); line != nullptr; line = std::strtok(nullptr, "\n")) {
        if (char* path = std::strstr(line, ":memory:"))
            left = std::min(left, left_in_group("/sys/fs/cgroup/memory", path + 8,
                                                "memory.limit_in_bytes", "memory.usage_in_bytes"));
        else if (std::strncmp(line, "0::", 3) == 0)
            left = std::min(
                left, left_in_group("/sys/fs/cgroup", line + 3, "memory.max", "memory.current"));
    }
    return left;
}

}  // namespace assay::alloc
