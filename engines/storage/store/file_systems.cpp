// Recognises NFS and SMB by the file system type of statfs(2).
#include "storage/store/network_file_system.hpp"

#include <linux/magic.h>
#include <sys/statfs.h>

#include <cstdint>

namespace assay::storage {
namespace {

// Older versions of linux/magic.h do not have these.
constexpr std::uint32_t cifs_magic = 0xFF534D42, smb2_magic = 0xFE534D42;

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

}  // namespace assay::storage
