// Recognises file systems by the type of statfs(2).
#include "storage/store/file_systems.hpp"

#include <linux/magic.h>
#include <sys/statfs.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace assay::storage {
namespace {

// Older versions of linux/magic.h do not have these.
constexpr std::uint32_t cifs_magic = 0xFF534D42, smb2_magic = 0xFE534D42, xfs_magic = 0x58465342;

constexpr std::uint32_t local_file_systems[] = {TMPFS_MAGIC,       RAMFS_MAGIC,
                                                EXT4_SUPER_MAGIC,  xfs_magic,
                                                BTRFS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC};

}  // namespace

const char* incoherent_file_system(int fd) {
    struct statfs info{};
    if (fstatfs(fd, &info)) return nullptr;
    switch (static_cast<std::uint32_t>(info.f_type)) {
        case NFS_SUPER_MAGIC: return "NFS";
        case SMB_SUPER_MAGIC:
        case cifs_magic:
        case smb2_magic: return "SMB";
        default: return nullptr;
    }
}

bool is_local(int fd) {
    struct statfs info{};
    if (fstatfs(fd, &info)) return false;
    return std::find(std::begin(local_file_systems), std::end(local_file_systems),
                     static_cast<std::uint32_t>(info.f_type)) != std::end(local_file_systems);
}

}  // namespace assay::storage
