// What a store lies in: a file (usually in tmpfs) or a dax device.
#pragma once

#include <cstdint>
#include <string>

struct stat;

namespace assay::storage {

enum class Backing { memory, device, file };  // tmpfs; /dev/dax*; any other file system

constexpr std::uint64_t huge_page = 2u << 20;  // the alignment of a dax device

// Whether it is a dax device. Other character devices are never opened, because opening one may
// have side effects.
bool is_dax_device(const struct stat& info);
// Whether a symbolic link at a path is followed. It is where the user has named the path.
enum class Links { followed, refused };
// -1: it is neither a regular file nor a dax device, or cannot be opened; errno says why.
int open_store_file(const std::string& path, Links links = Links::followed);
// Whether the open file belongs to another user, who may plant data or change them at any time.
// False for devices.
bool is_of_another_user(int fd);
// Whether users other than this one and root may write it, by its owner and mode. The group's bits
// count, also because they include those of access control lists.
bool may_be_written_by_others(const struct stat& info);
// Whether the open file is a device that others may write: an earlier store on it may be planted.
bool is_open_device(int fd);
Backing backing_of(int fd);
// The size of the file or device in bytes; 0 if it is not known.
std::uint64_t bytes_of(int fd);
// Whether each byte of a file is zero. Holes are not read.
bool is_zero(int fd);
// Whether the file is still the one at the path.
bool is_at(int fd, const std::string& path);
// Unlinks the file, unless another one is at the path. A link that leads to the file stays. Returns
// 0 or errno.
int unlink_file(int fd, const std::string& path);

// strerror(errno)
std::string errno_text();

}  // namespace assay::storage
