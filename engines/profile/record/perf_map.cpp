// Selects the lines of a perf map that contain addresses of the stack tree.
#include "profile/record/perf_map.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <vector>

namespace assay::heap {
namespace {

// Opens a regular file that this user or root owns. Returns null for others and for symbolic links,
// since every user can write to /tmp.
FILE* open_trusted(const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat status{};
    if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
        (status.st_uid == geteuid() || status.st_uid == 0))
        return fdopen(fd, "r");
    if (fd >= 0) close(fd);
    return nullptr;
}

}  // namespace

std::string jit_symbols(std::uint32_t pid, std::span<const stack::Node> nodes) {
    const std::unique_ptr<FILE, int (*)(FILE*)> file(
        open_trusted(fmt::format("/tmp/perf-{}.map", pid)), [](FILE* f) { return std::fclose(f); });
    if (file == nullptr) return "";
    std::vector<std::uint64_t> addresses;
    std::ranges::transform(nodes, std::back_inserter(addresses), &stack::Node::address);
    std::ranges::sort(addresses);
    std::string lines;
    char* line = nullptr;
    std::size_t capacity = 0;
    while (getline(&line, &capacity, file.get()) > 0) {
        char* rest = nullptr;
        const std::uint64_t begin = std::strtoull(line, &rest, 16),
                            bytes = std::strtoull(rest, nullptr, 16);
        // The lowest address at or above the function's begin.
        const auto lowest = std::ranges::lower_bound(addresses, begin);
        if (lowest != addresses.end() && *lowest - begin < bytes) lines += line;
    }
    std::free(line);
    return lines;
}

}  // namespace assay::heap
