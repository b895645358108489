#include "storage/accelerator/system_file.hpp"

#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace assay::storage {
namespace {

std::int64_t nanoseconds(const timespec& time) {
    return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

bool kernel_has_fine_times() {
    static const bool fine = [] {
        utsname info{};
        if (uname(&info) != 0) return false;
        char* end_of_number = nullptr;
        const long major = std::strtol(info.release, &end_of_number, 10);
        if (*end_of_number != '.') return false;
        const long minor = std::strtol(end_of_number + 1, nullptr, 10);
        return major > 6 || (major == 6 && minor >= 13);
    }();
    return fine;
}

// Whether each change of a file gets a modification time of its own. Since Linux 6.13 these file
// systems do so if the previous time was queried (Documentation/filesystems/multigrain-ts.rst). All
// others use the time of the kernel's last tick.
bool has_fine_times(int fd) {
    struct statfs info{};
    if (!kernel_has_fine_times() || fstatfs(fd, &info)) return false;
    constexpr long fine[] = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, TMPFS_MAGIC};
    return std::find(std::begin(fine), std::end(fine), static_cast<long>(info.f_type)) !=
           std::end(fine);
}

}  // namespace

std::string strip_prefix(const char* name, bool any_prefix) {
    constexpr std::string_view known[] = {"ufs", "nfs", "lustre", "gpfs", "xfs", "pvfs2", "panfs"};
    const char* colon = std::strchr(name, ':');
    const char* slash = std::strchr(name, '/');
    if (!colon || colon - name < 2 || (slash && slash < colon)) return name;
    const std::string_view prefix(name, static_cast<std::size_t>(colon - name));
    const bool is_known = std::ranges::find(known, prefix) != std::end(known);
    return any_prefix || (is_known && colon[1] == '/') ? colon + 1 : name;
}

void wait_for_clock_tick(int fd, std::int64_t last_write_ns) {
    if (has_fine_times(fd)) return;
    for (int attempt = 0; attempt < 20; ++attempt) {
        timespec now{};
        clock_gettime(CLOCK_REALTIME_COARSE, &now);
        if (nanoseconds(now) > last_write_ns) return;
        usleep(1000);
    }
}

std::string path_of(int fd, const std::string& opened) {
    char link[64], path[PATH_MAX];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof path);
    if (length > 0 && length < PATH_MAX && path[0] == '/')
        return {path, static_cast<std::size_t>(length)};
    return realpath(opened.c_str(), path) ? path : opened;
}

std::string absolute(const std::string& name) {
    char folder[PATH_MAX];
    return name.starts_with('/') || !getcwd(folder, sizeof folder) ? name : folder + ("/" + name);
}

bool is_symbolic_link(const std::string& name) {
    struct stat info{};
    return lstat(name.c_str(), &info) == 0 && S_ISLNK(info.st_mode);
}

bool is_kernel_file(int fd) {
    struct statfs info{};
    if (fstatfs(fd, &info)) return true;
    constexpr long kernel[] = {PROC_SUPER_MAGIC,   SYSFS_MAGIC,      DEBUGFS_MAGIC,
                               TRACEFS_MAGIC,      SECURITYFS_MAGIC, CGROUP_SUPER_MAGIC,
                               CGROUP2_SUPER_MAGIC};
    return std::find(std::begin(kernel), std::end(kernel), static_cast<long>(info.f_type)) !=
           std::end(kernel);
}

bool descriptors_are_scarce(int fd) {
    rlimit limit{};
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
           static_cast<rlim_t>(fd) >= limit.rlim_cur / 4 * 3;
}

}  // namespace assay::storage
