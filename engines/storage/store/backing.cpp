// Opens, measures and removes the files of stores, and tells dax devices from other devices.
#include "storage/store/backing.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace assay::storage {
namespace {

constexpr long tmpfs_magic = 0x01021994;  // statfs(2)

std::uint64_t device_bytes(const struct stat& info) {
    char path[128];
    std::snprintf(path, sizeof path, "/sys/dev/char/%u:%u/size", major(info.st_rdev),
                  minor(info.st_rdev));
    std::uint64_t bytes = 0;
    if (FILE* file = std::fopen(path, "r")) {
        char text[32];
        if (std::fgets(text, sizeof text, file)) bytes = std::strtoull(text, nullptr, 10);
        std::fclose(file);
    }
    return bytes / huge_page * huge_page;
}

bool can_hold_store(const struct stat& info) {
    return S_ISREG(info.st_mode) || is_dax_device(info);
}

}  // namespace

std::string errno_text() { return std::strerror(errno); }

bool is_dax_device(const struct stat& info) {
    char path[128], target[PATH_MAX];
    std::snprintf(path, sizeof path, "/sys/dev/char/%u:%u/subsystem", major(info.st_rdev),
                  minor(info.st_rdev));
    const ssize_t length = readlink(path, target, sizeof target);
    if (length <= 0) return false;
    const std::string_view text(target, static_cast<std::size_t>(length));
    return S_ISCHR(info.st_mode) && text.substr(text.rfind('/') + 1) == "dax";
}

// The kind is looked at before the file is opened, and again on the descriptor, because another
// file may have taken the path in between.
int open_store_file(const std::string& path, Links links) {
    const bool follows = links == Links::followed;
    struct stat info{};
    if (follows ? stat(path.c_str(), &info) : lstat(path.c_str(), &info)) return -1;
    if (!can_hold_store(info)) {
        errno = S_ISLNK(info.st_mode) ? ELOOP : ENODEV;
        return -1;
    }
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | (follows ? 0 : O_NOFOLLOW));
    if (fd < 0) return -1;
    if (fstat(fd, &info) == 0 && can_hold_store(info)) return fd;
    close(fd);
    errno = ENODEV;
    return -1;
}

bool is_of_another_user(int fd) {
    struct stat info{};
    return fstat(fd, &info) || (!S_ISCHR(info.st_mode) && info.st_uid != geteuid());
}

bool may_be_written_by_others(const struct stat& info) {
    const bool has_other_owner = info.st_uid != geteuid() && info.st_uid != 0;
    return has_other_owner || info.st_mode & (S_IWGRP | S_IWOTH);
}

bool is_open_device(int fd) {
    struct stat info{};
    return fstat(fd, &info) || (S_ISCHR(info.st_mode) && may_be_written_by_others(info));
}

Backing backing_of(int fd) {
    struct stat info{};
    if (fstat(fd, &info) == 0 && S_ISCHR(info.st_mode)) return Backing::device;
    struct statfs file_system{};
    const bool is_tmpfs = fstatfs(fd, &file_system) == 0 && file_system.f_type == tmpfs_magic;
    return is_tmpfs ? Backing::memory : Backing::file;
}

std::uint64_t bytes_of(int fd) {
    struct stat info{};
    if (fstat(fd, &info)) return 0;
    return S_ISCHR(info.st_mode) ? device_bytes(info) : static_cast<std::uint64_t>(info.st_size);
}

bool is_zero(int fd) {
    char block[1 << 14];
    for (off_t from = 0; (from = lseek(fd, from, SEEK_DATA)) >= 0;) {
        const ssize_t length = pread(fd, block, sizeof block, from);
        if (length <= 0 || std::any_of(block, block + length, [](char byte) { return byte != 0; }))
            return false;
        from += length;
    }
    return errno == ENXIO;  // no data beyond `from`
}

bool is_at(int fd, const std::string& path) {
    struct stat info{}, found{};
    return fstat(fd, &info) == 0 && stat(path.c_str(), &found) == 0 &&
           info.st_dev == found.st_dev && info.st_ino == found.st_ino;
}

int unlink_file(int fd, const std::string& path) {
    char real[PATH_MAX];
    if (!is_at(fd, path)) return ENOENT;
    return realpath(path.c_str(), real) && unlink(real) == 0 ? 0 : errno;
}

}  // namespace assay::storage
