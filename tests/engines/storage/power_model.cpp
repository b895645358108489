// Replaces some functions of the C library (mmap, fsync, pwritev, ...) in this test program, so
// that a tmpfs file behaves like persistent memory, writes can fail, and fsyncs are recorded.
// Models what a power failure leaves (power_model.hpp).
#include "power_model.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#ifndef MAP_SYNC
#define MAP_SYNC 0x80000
#endif
#ifndef MAP_SHARED_VALIDATE
#define MAP_SHARED_VALIDATE 0x03
#endif

namespace {

bool persistent_memory = false;
bool failing_writes = false;
bool exits_in_write = false;
off_t full_from = 0;        // 0: never
long file_system_type = 0;  // 0: the real one
assay::storage::FileSystem* file_system = nullptr;
std::function<void(char*, std::size_t)> next_map_action;
std::function<int(int)> fsync_action;

}  // namespace

// These definitions take precedence over those of the C library.
extern "C" {

// Accepts MAP_SYNC for a tmpfs file, as if it were on persistent memory.
void* mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
    const bool persistent = persistent_memory && flags & MAP_SYNC;
    if (persistent) flags = (flags & ~(MAP_SYNC | MAP_SHARED_VALIDATE)) | MAP_SHARED;
    auto* map =
        reinterpret_cast<char*>(syscall(SYS_mmap, address, bytes, protection, flags, fd, offset));
    if (persistent && next_map_action) std::exchange(next_map_action, nullptr)(map, bytes);
    return map;
}

int fstatfs(int fd, struct statfs* info) noexcept {
    const auto result = static_cast<int>(syscall(SYS_fstatfs, fd, info));
    if (persistent_memory) info->f_type = 0xEF53;  // ext4
    if (file_system_type) info->f_type = file_system_type;
    return result;
}

int fallocate(int fd, int mode, off_t from, off_t bytes) {
    if (full_from && from + bytes > full_from) return errno = ENOSPC, -1;
    return static_cast<int>(syscall(SYS_fallocate, fd, mode, from, bytes));
}

int fsync(int fd) {
    if (file_system) file_system->note_fsync(fd);
    if (const int error = fsync_action ? fsync_action(fd) : 0) return errno = error, -1;
    return static_cast<int>(syscall(SYS_fsync, fd));
}

ssize_t pwritev(int fd, const iovec* parts, int count, off_t offset) {
    if (exits_in_write) _exit(0);
    if (failing_writes) return errno = EIO, -1;
    return syscall(SYS_pwritev, fd, parts, count, offset, 0);
}
}

namespace assay::storage {
namespace {

std::string read_all(int fd) {
    struct stat info{};
    fstat(fd, &info);
    std::string contents(static_cast<std::size_t>(info.st_size), 0);
    const ssize_t bytes_read = pread(fd, contents.data(), contents.size(), 0);
    contents.resize(static_cast<std::size_t>(std::max<ssize_t>(0, bytes_read)));
    return contents;
}

void write_all(int fd, const std::string& contents) {
    if (ftruncate(fd, 0) ||
        pwrite(fd, contents.data(), contents.size(), 0) != static_cast<ssize_t>(contents.size()))
        std::abort();
}

}  // namespace

void model_persistent_memory(bool on) { persistent_memory = on; }
void exit_in_next_write() { exits_in_write = true; }
void model_file_system(long type) { file_system_type = type; }
void fill_device(std::size_t from) { full_from = static_cast<off_t>(from); }
void on_next_map(std::function<void(char*, std::size_t)> action) {
    next_map_action = std::move(action);
}
void on_fsync(std::function<int(int)> action) { fsync_action = std::move(action); }
bool fail_writes(bool on) { return std::exchange(failing_writes, on); }

// ---- persistent memory

Medium::Medium(char* live, std::size_t bytes, Random& random)
    : live_(live),
      durable_(static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))),
      bytes_(bytes),
      random_(random) {
    persist_observer = this;
}

void Medium::add(std::size_t offset, std::size_t bytes) {
    ranges_.push_back({offset, bytes});
    std::memcpy(durable_ + offset, live_ + offset, bytes);
}

Medium::~Medium() {
    persist_observer = nullptr;
    munmap(durable_, bytes_);
}

void Medium::write_back(const void* from, std::size_t bytes) {
    if (at_crash_point) at_crash_point();
    const auto begin = static_cast<std::size_t>(static_cast<const char*>(from) - live_);
    for (std::size_t k = begin / cache_line * cache_line; k < begin + bytes; k += cache_line)
        std::memcpy(written_back_[k].bytes, live_ + k, cache_line);
}

void Medium::fence() {
    if (at_crash_point) at_crash_point();
    for (const auto& [offset, line] : written_back_)
        std::memcpy(durable_ + offset, line.bytes, cache_line);
    written_back_.clear();
}

template <class Visit>
void Medium::for_each_changed_line(Visit visit) {
    constexpr std::size_t step = 4096;
    for (const auto& range : ranges_)
        for (std::size_t k = range.offset; k < range.offset + range.bytes; k += step) {
            const std::size_t end = std::min(k + step, range.offset + range.bytes);
            if (!std::memcmp(live_ + k, durable_ + k, end - k)) continue;
            for (std::size_t line = k; line < end; line += cache_line)
                if (std::memcmp(live_ + line, durable_ + line, cache_line)) visit(line);
        }
}

void Medium::evict_lines() {
    for_each_changed_line([&](std::size_t line) {
        if (random_() % 32 == 0) std::memcpy(durable_ + line, live_ + line, cache_line);
    });
}

// For lines that are not fenced, some power failures keep all of them, others none or a part.
// Rules: 0 none, 1 a random part, 2 all.
void Medium::lose_power(char* to) {
    for (const auto& range : ranges_)
        std::memcpy(to + range.offset, durable_ + range.offset, range.bytes);
    const std::uint64_t flushed_rule = random_() % 3, changed_rule = random_() % 3,
                        tear_rule = random_() % 4;
    const auto is_kept = [&](std::uint64_t rule) { return rule == 2 || (rule && random_() % 2); };
    const auto copy_line = [&](std::size_t offset, const char* line) {
        const bool torn = tear_rule == 0 && random_() % 4 == 0;
        for (std::size_t word = 0; word < cache_line; word += 8)
            if (!torn || random_() % 2) std::memcpy(to + offset + word, line + word, 8);
    };
    for (const auto& [offset, line] : written_back_)
        if (is_kept(flushed_rule)) copy_line(offset, line.bytes);
    for_each_changed_line([&](std::size_t line) {
        if (is_kept(changed_rule)) copy_line(line, live_ + line);
    });
}

// ---- files

FileSystem::FileSystem(std::string folder, Random& random)
    : folder_(std::move(folder)), random_(random) {
    std::filesystem::create_directories(folder_ + "/live");
    std::filesystem::create_directories(folder_ + "/lost");
    file_system = this;
}

FileSystem::~FileSystem() {
    file_system = nullptr;
    for (const auto& file : files_) close(file.live_fd), close(file.lost_fd);
}

// A name that a lost file always has. Its second name is the one that it has after a power failure,
// if it exists then.
std::string FileSystem::hidden_path(std::size_t file) const {
    return folder_ + "/lost/." + std::to_string(file);
}

std::size_t FileSystem::create(const std::string& name, const std::string& contents) {
    File file{name, contents, 0, 0, {}, {}, false, true};
    file.live_fd = open((folder_ + "/live/" + name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    file.lost_fd = open(hidden_path(files_.size()).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file.live_fd < 0 || file.lost_fd < 0) std::abort();
    write_all(file.live_fd, contents);
    read_status(file.live_fd, file.live);
    read_status(file.lost_fd, file.lost);
    files_.push_back(file);
    return files_.size() - 1;
}

void FileSystem::remove(std::size_t file) {
    unlink(path(file).c_str());
    files_[file].removed = true;
}

void FileSystem::note_fsync(int fd) {
    FileStatus status;
    if (read_status(fd, status)) return;
    for (auto& file : files_)
        if (file.live.inode == status.inode) file.synced = read_all(file.live_fd);
}

std::string FileSystem::lost_contents(const File& file) const {
    constexpr std::size_t disk_page = 4096;
    std::string lost = read_all(file.live_fd);
    const std::uint64_t keep_rule = random_() % 3;  // all, none, some
    if (keep_rule == 1 || (keep_rule && random_() % 2)) lost.resize(file.synced.size());
    for (std::size_t from = 0; from < lost.size(); from += disk_page) {
        if (keep_rule == 0 || (keep_rule == 2 && random_() % 2)) continue;
        const std::size_t bytes = std::min(disk_page, lost.size() - from);
        std::string synced = from < file.synced.size() ? file.synced.substr(from, bytes) : "";
        synced.resize(bytes);
        lost.replace(from, bytes, synced);
    }
    return lost;
}

// If several files have had the same name, the newest one has it. The removal of one of the last
// files may be lost.
void FileSystem::lose_power() {
    for (const auto& file : files_) unlink((folder_ + "/lost/" + file.name).c_str());
    for (std::size_t k = files_.size(); k-- > 0;) {
        auto& file = files_[k];
        file.exists = !file.removed || (k + 8 > files_.size() && random_() % 2);
        if (!file.exists) continue;
        write_all(file.lost_fd, lost_contents(file));
        struct stat info{};
        fstat(file.live_fd, &info);
        const timespec times[2] = {info.st_atim, info.st_mtim};
        futimens(file.lost_fd, times);
        file.exists = link(hidden_path(k).c_str(), (folder_ + "/lost/" + file.name).c_str()) == 0;
    }
}

void FileSystem::redirect(Store& store, std::uint32_t slots) const {
    for (std::uint32_t k = 0; k < slots; ++k) {
        auto& slot = store.file(k);
        for (const auto& file : files_) {
            if (slot.inode == file.live.inode) slot.inode = file.lost.inode;
            if (slot.birth_ns == file.live.birth_ns) slot.birth_ns = file.lost.birth_ns;
        }
        constexpr char live[] = "/live/", lost[] = "/lost/";
        char* const end = slot.path + path_limit;
        char* const position = std::search(slot.path, end, live, live + 6);
        if (position != end) std::memcpy(position, lost, 6);
    }
}

std::string FileSystem::contents_after(std::size_t file) const {
    return read_all(files_[file].lost_fd);
}

}  // namespace assay::storage
