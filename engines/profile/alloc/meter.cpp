// Reads the memory use of the measured process from /proc and control groups.
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

// Reads a small file in /proc or /sys. Returns false if it cannot be read.
template <std::size_t N>
bool read_file(const char* path, char (&text)[N]) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    std::size_t length = 0;
    for (ssize_t n = 1; n > 0 && length < N - 1;
         length += static_cast<std::size_t>(std::max<ssize_t>(n, 0)))
        n = read(fd, text + length, N - 1 - length);
    text[length] = 0;
    close(fd);
    return length > 0;
}

// The value in kilobytes after `name` ("\nName:"), converted to bytes; 0 if there is no such line.
std::uint64_t read_kilobytes(const char* text, const char* name) {
    const char* line = std::strstr(text, name);
    return line == nullptr ? 0 : std::strtoull(line + std::strlen(name), nullptr, 10) << 10;
}

// Reads the number in a file; `unlimited` for "max" and for a missing file.
std::uint64_t read_limit(const char* path) {
    char text[64];
    if (!read_file(path, text) || text[0] < '0' || text[0] > '9') return unlimited;
    return std::strtoull(text, nullptr, 10);
}

// Bytes of a control group's file cache, which the kernel frees under memory pressure.
std::uint64_t reclaimable_bytes(const char* folder) {
    char path[1024], text[8192];
    std::snprintf(path, sizeof path, "%s/memory.stat", folder);
    if (!read_file(path, text)) return 0;
    const char* line = std::strstr(text, "\ninactive_file ");
    return line == nullptr ? 0 : std::strtoull(line + sizeof "\ninactive_file", nullptr, 10);
}

// The bytes that a control group may still use: the minimum over the group and its ancestors.
std::uint64_t available_in_group(const char* root, char* group, const char* limit_file,
                                 const char* used_file) {
    std::uint64_t available = unlimited;
    char folder[768], path[1024];
    for (;;) {
        std::snprintf(folder, sizeof folder, "%s%s", root, group);
        std::snprintf(path, sizeof path, "%s/%s", folder, limit_file);
        const std::uint64_t limit = read_limit(path);
        std::snprintf(path, sizeof path, "%s/%s", folder, used_file);
        const std::uint64_t used_bytes = read_limit(path);
        if (limit != unlimited && used_bytes != unlimited) {
            const std::uint64_t unused = limit > used_bytes ? limit - used_bytes : 0;
            available =
                std::min(available, unused + std::min(used_bytes, reclaimable_bytes(folder)));
        }
        char* slash = std::strrchr(group, '/');
        if (slash == nullptr) return available;
        *slash = 0;
    }
}

}  // namespace

double measure_tick() {
    constexpr Nanoseconds duration = 20'000'000;
    const Nanoseconds begin = now();
    const std::uint64_t begin_ticks = ticks();
    while (now() - begin < duration) {
    }
    const std::uint64_t end_ticks = ticks();
    return seconds(now() - begin) / static_cast<double>(end_ticks - begin_ticks);
}

ResidentMemory resident_memory() {
    char text[4096];
    if (!read_file("/proc/self/smaps_rollup", text)) return {0, 0};
    const std::uint64_t hugetlb =
        read_kilobytes(text, "\nPrivate_Hugetlb:") + read_kilobytes(text, "\nShared_Hugetlb:");
    return {read_kilobytes(text, "\nAnonymous:") + read_kilobytes(text, "\nPss_Shmem:") + hugetlb,
            read_kilobytes(text, "\nAnonHugePages:") + read_kilobytes(text, "\nShmemPmdMapped:") +
                hugetlb};
}

std::uint64_t available_memory() {
    char text[8192];
    std::uint64_t available =
        read_file("/proc/meminfo", text) ? read_kilobytes(text, "\nMemAvailable:") : unlimited;
    if (!read_file("/proc/self/cgroup", text)) return available;
    for (char* line = std::strtok(text, "\n"); line != nullptr; line = std::strtok(nullptr, "\n")) {
        if (char* path = std::strstr(line, ":memory:"))
            available = std::min(
                available, available_in_group("/sys/fs/cgroup/memory", path + 8,
                                              "memory.limit_in_bytes", "memory.usage_in_bytes"));
        else if (std::strncmp(line, "0::", 3) == 0)
            available = std::min(available, available_in_group("/sys/fs/cgroup", line + 3,
                                                               "memory.max", "memory.current"));
    }
    return available;
}

}  // namespace assay::alloc
