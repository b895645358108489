// Reads the memory use of the measured process from /proc.
#include "profile/alloc/meter.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "profile/stack/moment.hpp"

namespace assay::alloc {
namespace {

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

}  // namespace

double measure_tick() {
    constexpr std::uint64_t duration = 20'000'000;
    const stack::Moment begin = stack::read_moment();
    while (stack::raw_time_ns() - begin.ns < duration) {
    }
    const stack::Moment end = stack::read_moment();
    return static_cast<double>(end.ns - begin.ns) * 1e-9 /
           static_cast<double>(end.ticks - begin.ticks);
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

}  // namespace assay::alloc
