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
// -1: it is neither a regular file nor a dax device, or cannot be opened; errno says why.
int open_store_file(const std::string& path);
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
