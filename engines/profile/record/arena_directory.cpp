#include "profile/record/arena_directory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string_view>

#include "core/error.hpp"

namespace assay::heap {
namespace {

constexpr std::uint64_t min_free_bytes = 32 << 20;  // that the buffers of a small program occupy
constexpr std::string_view arena_memory = "/dev/shm", arena_prefix = "assay-heap-";
constexpr std::time_t min_age_s = 60;  // a new directory is not locked at once

// Whether a file system has space for the buffers. /dev/shm is small in containers.
bool has_free_space(const std::string& folder) {
    struct statvfs status{};
    return statvfs(folder.c_str(), &status) == 0 &&
           status.f_bavail * status.f_frsize >= min_free_bytes;
}

bool is_abandoned(int directory) {
    struct stat status{};
    return fstat(directory, &status) == 0 && status.st_uid == geteuid() &&
           std::time(nullptr) - status.st_mtime >= min_age_s &&
           flock(directory, LOCK_EX | LOCK_NB) == 0;
}

int open_directory(const std::string& path) {
    return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

}  // namespace

void remove_abandoned_arenas(const std::string& memory) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(memory, ignored)) {
        if (!entry.path().filename().string().starts_with(arena_prefix)) continue;
        const int directory = open_directory(entry.path());
        if (directory < 0) continue;
        if (is_abandoned(directory)) std::filesystem::remove_all(entry.path(), ignored);
        close(directory);
    }
}

ArenaDirectory::ArenaDirectory(const std::string& fallback) {
    const std::string memory(arena_memory);
    remove_abandoned_arenas(memory);
    for (std::string path :
         {fmt::format("{}/{}XXXXXX", memory, arena_prefix), fallback + "/arena-XXXXXX"})
        if (has_free_space(path.substr(0, path.rfind('/'))) && mkdtemp(path.data()) != nullptr) {
            path_ = path;
            lock_ = open_directory(path_);
            if (lock_ >= 0) flock(lock_, LOCK_EX | LOCK_NB);
            return;
        }
    throw Error("cannot create the buffers: neither /dev/shm nor " + fallback +
                    " is writable and has 32 MiB free",
                "choose another folder with -o");
}

ArenaDirectory::~ArenaDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
    if (lock_ >= 0) close(lock_);
}

void ArenaDirectory::chown_to_owner(pid_t pid) const {
    struct stat status{};
    if (stat(fmt::format("/proc/{}", pid).c_str(), &status) != 0 || status.st_uid == geteuid())
        return;
    // If this fails, creating the arena fails and is reported.
    [[maybe_unused]] const int done = chown(path_.c_str(), status.st_uid, status.st_gid);
}

}  // namespace assay::heap
