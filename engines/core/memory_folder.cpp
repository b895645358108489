#include "core/memory_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "core/error.hpp"

namespace assay {
namespace {

constexpr std::uint64_t min_free_bytes = 32 << 20;  // that the buffers of a small program occupy
constexpr std::time_t min_age_s = 60;               // a new folder is not locked at once

// Whether a file system has space for the buffers. /dev/shm is small in containers.
bool has_free_space(const std::string& folder) {
    struct statvfs status{};
    return statvfs(folder.c_str(), &status) == 0 &&
           status.f_bavail * status.f_frsize >= min_free_bytes;
}

bool is_abandoned(int folder) {
    struct stat status{};
    return fstat(folder, &status) == 0 && status.st_uid == geteuid() &&
           std::time(nullptr) - status.st_mtime >= min_age_s &&
           flock(folder, LOCK_EX | LOCK_NB) == 0;
}

int open_folder(const std::string& path) {
    return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

}  // namespace

void remove_abandoned_folders(const std::string& memory, const std::string& prefix) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(memory, ignored)) {
        if (!entry.path().filename().string().starts_with(prefix)) continue;
        const int folder = open_folder(entry.path());
        if (folder < 0) continue;
        if (is_abandoned(folder)) std::filesystem::remove_all(entry.path(), ignored);
        close(folder);
    }
}

MemoryFolder::MemoryFolder(const std::string& prefix, const std::string& fallback) {
    const std::string memory = "/dev/shm";
    remove_abandoned_folders(memory, prefix);
    std::string in_memory = memory;
    in_memory.append("/").append(prefix).append("XXXXXX");
    for (std::string path : {in_memory, fallback + "/buffers-XXXXXX"})
        if (has_free_space(path.substr(0, path.rfind('/'))) && mkdtemp(path.data()) != nullptr) {
            path_ = path;
            lock_ = open_folder(path_);
            if (lock_ >= 0) flock(lock_, LOCK_EX | LOCK_NB);
            return;
        }
    throw Error("cannot create the buffers: neither /dev/shm nor " + fallback +
                    " is writable and has 32 MiB free",
                "choose another folder with -o");
}

MemoryFolder::~MemoryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
    if (lock_ >= 0) close(lock_);
}

}  // namespace assay
