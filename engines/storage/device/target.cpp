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

constexpr std::size_t alignment = 2u << 20;  // of a mapping of devdax; a huge page

[[noreturn]] void fail(const std::string& path, const char* doing, const std::string& fix) {
    throw Error(fmt::format("{}: cannot {}: {}", path, doing, std::strerror(errno)), fix);
}

std::string file_system(int descriptor) {
    struct statfs about{};
    if (fstatfs(descriptor, &about) != 0) return "unknown";
    switch (static_cast<unsigned long>(about.f_type)) {  // statfs(2), linux/magic.h, Lustre's own
        case 0x01021994: return "tmpfs";
        case 0xEF53: return "ext4";
        case 0x58465342: return "xfs";
        case 0x9123683E: return "btrfs";
        case 0x6969: return "nfs";
        case 0x0BD00BD0: return "lustre";
        case 0x794C7630: return "overlay";
        case 0x47504653: return "gpfs";
        default: return fmt::format("file system {:#x}", static_cast<unsigned long>(about.f_type));
    }
}

}  // namespace

Target::Target(const std::string& path, std::size_t bytes, bool writes, bool overwrite)
    : path_(path), bytes_(bytes / alignment ? bytes / alignment * alignment : bytes) {
    struct stat about{};
    if (path.empty())
        throw Error("no path given", "name a folder, a file or a device: --path /dev/shm");
    if (stat(path.c_str(), &about) != 0 && errno != ENOENT)
        fail(path, "look at it", "check the path");
    if (S_ISDIR(about.st_mode)) open_folder();
    else if (S_ISCHR(about.st_mode)) open_device(writes, overwrite);
    else if (S_ISREG(about.st_mode) || about.st_mode == 0) open_file(writes, overwrite);
    else throw Error(path + ": neither folder, file nor device of memory", "name one of these");
    if (!is_device_) {
        kind_ = file_system(descriptor_);
        open_direct();
    }
    try {
        map(writes || is_ours_);
        if (is_ours_ || (writes && overwrite)) fill();
    } catch (...) {  // no destructor runs for what is not whole
        release();
        throw;
    }
}

void Target::release() {
    if (mapping_) munmap(mapping_, bytes_);
    if (direct_ >= 0) close(direct_);
    if (descriptor_ >= 0) close(descriptor_);
    if (is_ours_) unlink(path_.c_str());
}

void Target::open_folder() {
    path_ += "/assay-device-XXXXXX";
    descriptor_ = mkostemp(path_.data(), O_CLOEXEC);
    if (descriptor_ < 0)
        fail(path_.substr(0, path_.rfind('/')), "make a file there",
             "name a folder that can be written to");
    is_ours_ = true;
}

void Target::open_file(bool writes, bool overwrite) {
    const bool there = access(path_.c_str(), F_OK) == 0;
    if (there && writes && !overwrite)
        throw Error(path_ + " holds something that would be lost",
                    "give --overwrite, or only read: --op read");
    descriptor_ =
        open(path_.c_str(), (writes || !there ? O_RDWR : O_RDONLY) | O_CREAT | O_CLOEXEC, 0600);
    if (descriptor_ < 0) fail(path_, "open it", "check the path and its permissions");
    is_ours_ = !there;
    struct stat about{};
    fstat(descriptor_, &about);
    if (there && !writes)
        bytes_ = std::min<std::size_t>(
            bytes_, static_cast<std::size_t>(about.st_size) / data_page * data_page);
    if (bytes_ == 0)
        throw Error(path_ + " is too short to read from", "name a file of 4 KiB at least");
}

void Target::open_device(bool writes, bool overwrite) {
    is_device_ = true;
    kind_ = "devdax";
    why_not_direct_ = "a device of memory is only mapped";
    if (writes && !overwrite)
        throw Error(path_ + ": what the device holds would be lost",
                    "give --overwrite, or only read: --op read");
    descriptor_ = open(path_.c_str(), (writes ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    if (descriptor_ < 0) fail(path_, "open it", "is it free, and yours to open?");
}

void Target::open_direct() {
    direct_ = open(path_.c_str(), (is_ours_ ? O_RDWR : fcntl(descriptor_, F_GETFL) & O_ACCMODE) |
                                      O_DIRECT | O_CLOEXEC);
    if (direct_ < 0)
        why_not_direct_ = fmt::format("{} refuses O_DIRECT: {}", kind_, std::strerror(errno));
}

void Target::map(bool writes) {
    if (!is_device_ && writes) {
        // Room is taken before: a full file system is an error here, and a signal later.
        const int status = posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes_));
        if (status != 0) {
            errno = status;
            fail(path_, "take the room for it", "make room there, or give fewer --bytes");
        }
    }
    void* const at = mmap(nullptr, bytes_, writes ? PROT_READ | PROT_WRITE : PROT_READ,
                          MAP_SHARED | MAP_POPULATE, descriptor_, 0);
    if (at == MAP_FAILED)
        fail(path_, fmt::format("map {} bytes of it", bytes_).c_str(),
             "is it that large? see --bytes");
    mapping_ = static_cast<std::byte*>(at);
}

// Every page is touched here, so that no first touch is timed.
void Target::fill() {
    for (std::size_t at = 0; at < bytes_; at += data_page)
        place_words(mapping_ + at, data_page, at);
    filled_ = true;
}

}  // namespace assay::storage
