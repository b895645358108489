// Opens, fills and maps the target of storage.device: a temporary file, an existing file or a
// /dev/dax device.
#include "storage/device/target.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.hpp"
#include "storage/device/data.hpp"

namespace assay::storage {
namespace {

constexpr std::size_t alignment = 2u << 20;  // a huge page: the alignment of devdax mappings

[[noreturn]] void fail(const std::string& path, const char* action, const std::string& fix) {
    throw Error(fmt::format("{}: cannot {}: {}", path, action, std::strerror(errno)), fix);
}

std::string file_system(int descriptor) {
    struct statfs info{};
    if (fstatfs(descriptor, &info) != 0) return "unknown";
    switch (static_cast<unsigned long>(info.f_type)) {  // statfs(2), linux/magic.h, Lustre
        case 0x01021994: return "tmpfs";
        case 0xEF53: return "ext4";
        case 0x58465342: return "xfs";
        case 0x9123683E: return "btrfs";
        case 0x6969: return "nfs";
        case 0x0BD00BD0: return "lustre";
        case 0x794C7630: return "overlay";
        case 0x47504653: return "gpfs";
        default: return fmt::format("file system {:#x}", static_cast<unsigned long>(info.f_type));
    }
}

}  // namespace

Target::Target(const std::string& path, std::size_t bytes, bool writes, bool overwrite)
    : path_(path), bytes_(bytes / alignment ? bytes / alignment * alignment : bytes) {
    struct stat info{};
    if (path.empty())
        throw Error("no path given", "give a folder, a file or a device, e.g. --path /dev/shm");
    if (stat(path.c_str(), &info) != 0 && errno != ENOENT) fail(path, "stat it", "check the path");
    if (S_ISDIR(info.st_mode)) open_folder();
    else if (S_ISCHR(info.st_mode)) open_device(writes, overwrite);
    else if (S_ISREG(info.st_mode) || info.st_mode == 0) open_file(writes, overwrite);
    else throw Error(path + ": not a folder, a file or a /dev/dax device", "e.g. --path /dev/shm");
    if (!is_device_) {
        kind_ = file_system(descriptor_);
        open_direct();
    }
    try {
        map(writes || is_temporary_);
        if (is_temporary_ || (writes && overwrite)) fill();
    } catch (...) {  // a throwing constructor calls no destructor
        release();
        throw;
    }
}

void Target::release() {
    if (mapping_) munmap(mapping_, bytes_);
    if (direct_descriptor_ >= 0) close(direct_descriptor_);
    if (descriptor_ >= 0) close(descriptor_);
    if (is_temporary_) unlink(path_.c_str());
}

void Target::open_folder() {
    path_ += "/assay-device-XXXXXX";
    descriptor_ = mkostemp(path_.data(), O_CLOEXEC);
    if (descriptor_ < 0)
        fail(path_.substr(0, path_.rfind('/')), "make a file there", "give a writable folder");
    is_temporary_ = true;
}

void Target::open_file(bool writes, bool overwrite) {
    const bool exists = access(path_.c_str(), F_OK) == 0;
    if (exists && writes && !overwrite)
        throw Error(path_ + " exists and would be overwritten",
                    "give --overwrite, or only read: --op read");
    descriptor_ =
        open(path_.c_str(), (writes || !exists ? O_RDWR : O_RDONLY) | O_CREAT | O_CLOEXEC, 0600);
    if (descriptor_ < 0) fail(path_, "open it", "check the path and its permissions");
    is_temporary_ = !exists;
    struct stat info{};
    fstat(descriptor_, &info);
    if (exists && !writes)
        bytes_ = std::min<std::size_t>(
            bytes_, static_cast<std::size_t>(info.st_size) / data_page * data_page);
    if (bytes_ == 0)
        throw Error(path_ + " is too short to read from", "give a file of at least 4 KiB");
}

void Target::open_device(bool writes, bool overwrite) {
    is_device_ = true;
    kind_ = "devdax";
    direct_unavailable_ = "a /dev/dax device can only be mapped";
    if (writes && !overwrite)
        throw Error(path_ + ": the data of the device would be overwritten",
                    "give --overwrite, or only read: --op read");
    descriptor_ = open(path_.c_str(), (writes ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    if (descriptor_ < 0) fail(path_, "open it", "check its permissions and whether it is in use");
}

void Target::open_direct() {
    direct_descriptor_ =
        open(path_.c_str(), (is_temporary_ ? O_RDWR : fcntl(descriptor_, F_GETFL) & O_ACCMODE) |
                                O_DIRECT | O_CLOEXEC);
    if (direct_descriptor_ < 0)
        direct_unavailable_ = fmt::format("{} refuses O_DIRECT: {}", kind_, std::strerror(errno));
}

void Target::map(bool writes) {
    if (!is_device_ && writes) {
        // Allocated first: on a full file system this fails, while a later store would raise
        // SIGBUS.
        const int status = posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes_));
        if (status != 0) {
            errno = status;
            fail(path_, "allocate its space", "free some space, or lower --bytes");
        }
    }
    void* const address = mmap(nullptr, bytes_, writes ? PROT_READ | PROT_WRITE : PROT_READ,
                               MAP_SHARED | MAP_POPULATE, descriptor_, 0);
    if (address == MAP_FAILED)
        fail(path_, fmt::format("map {} bytes of it", bytes_).c_str(),
             "check its size, or lower --bytes");
    mapping_ = static_cast<std::byte*>(address);
}

// Writes the test data. This also touches every page, so that no page fault of a first touch is
// timed.
void Target::fill() {
    for (std::size_t offset = 0; offset < bytes_; offset += data_page)
        stamp_device_pages(mapping_ + offset, data_page, offset);
    filled_ = true;
}

}  // namespace assay::storage
