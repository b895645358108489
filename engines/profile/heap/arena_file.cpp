// Creates the arena of this process: the file, its mapping and its header.
#include "profile/heap/arena_file.hpp"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "profile/heap/bindings.hpp"
#include "profile/heap/notes.hpp"
#include "profile/heap/process.hpp"
#include "profile/heap/settings.hpp"
#include "profile/stack/moment.hpp"
#include "profile/stack/populate.hpp"

namespace assay::heap {

ArenaHeader* header = nullptr;

namespace {

char* buffers = nullptr;
std::size_t mapped_bytes = 0;
char arena_path[PATH_MAX], directory_path[PATH_MAX];

}  // namespace

BufferHeader* buffer_at(std::uint32_t index) {
    return reinterpret_cast<BufferHeader*>(buffers + std::size_t{index} * buffer_bytes);
}

bool populate(void* address, std::size_t bytes) {
    if (stack::populate(address, bytes)) return true;
    header->shortage.store(static_cast<std::uint32_t>(Shortage::memory), std::memory_order_relaxed);
    return false;
}

namespace {

// Maps memory with a raw system call, since mmap() is hooked.
void* map_memory(std::size_t bytes, int flags, int fd = -1) {
    const long address =
        syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, fd, 0);
    return address == -1 ? nullptr : reinterpret_cast<void*>(address);
}

void read_program(char* buffer, std::size_t bytes) {
    const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, buffer, bytes - 1) : 0;
    if (fd >= 0) close(fd);
    buffer[n > 0 ? n : 0] = 0;
}

// Maps the arena's file with `count` buffers, or with fewer if limits require it. Returns null if
// it cannot be mapped.
void* map_arena(int fd, std::uint32_t& count) {
    const std::uint64_t max_bytes = stack::max_file_bytes();
    for (; count >= min_buffers; count /= 2) {
        mapped_bytes = arena_bytes(count);
        if (mapped_bytes > max_bytes) continue;
        if (ftruncate(fd, static_cast<off_t>(mapped_bytes)) != 0) return nullptr;
        if (void* mapping = map_memory(mapped_bytes, MAP_SHARED, fd); mapping != nullptr)
            return mapping;
    }
    return nullptr;
}

}  // namespace

bool create_arena(const char* directory) {
    char temporary_path[PATH_MAX];
    const auto pid = static_cast<unsigned>(getpid());
    const std::uint64_t name_ticks = stack::ticks();
    const auto write_name = [&](char* buffer, const char* suffix) {
        // snprintf allocates nothing for these conversions.
        return __builtin_snprintf(buffer, PATH_MAX, "%s/%u.%llx%s", directory, pid,
                                  static_cast<unsigned long long>(name_ticks), suffix) < PATH_MAX;
    };
    if (directory != directory_path)
        __builtin_snprintf(directory_path, sizeof directory_path, "%s", directory);
    if (!write_name(temporary_path, ".part") || !write_name(arena_path, ".arena")) return false;
    const int fd = open(temporary_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return false;
    std::uint32_t count = max_buffers;
    void* mapping = map_arena(fd, count);
    close(fd);
    header = static_cast<ArenaHeader*>(mapping);
    if (mapping == nullptr || !stack::populate(mapping, header_bytes)) {
        unlink(temporary_path);
        return false;
    }
    buffers = static_cast<char*>(mapping) + buffers_offset;
    header->buffer_count = count;
    header->pid = pid;
    header->parent = static_cast<std::uint32_t>(getppid());
    const stack::Moment start = stack::read_moment();
    header->start_ticks = start.ticks;
    header->start_ns = start.ns;
    read_program(header->program, sizeof header->program);
    [[maybe_unused]] const ssize_t path_bytes =
        readlink("/proc/self/exe", header->executable, sizeof header->executable - 1);
    strncpy(header->rank, mpi_rank(), sizeof header->rank - 1);
    header->own_allocator = has_own_allocator() ? 1 : 0;
    header->magic = arena_magic;
    stack_tree.release();
    if (!stack_tree.reserve(
            node_count, reinterpret_cast<stack::Node*>(static_cast<char*>(mapping) + nodes_offset),
            populate)) {
        unlink(temporary_path);
        return false;
    }
    return rename(temporary_path, arena_path) == 0;
}

void* map_zeroed(std::size_t bytes) { return map_memory(bytes, MAP_PRIVATE | MAP_ANONYMOUS); }

void release_arena() {
    if (header != nullptr) syscall(SYS_munmap, header, mapped_bytes);
    header = nullptr;
}

void discard_arena_memory() {
    unlink(arena_path);
    rmdir(directory_path);
    madvise(static_cast<void*>(header), mapped_bytes, MADV_REMOVE);
}

const char* arena_directory() { return directory_path; }

// Decides by the owner of the directory, since a process that has just dropped root privileges may
// keep access until its exec.
bool can_create_arena() {
    struct stat status{};
    return geteuid() == 0 || (stat(directory_path, &status) == 0 && status.st_uid == geteuid());
}

void note_unrecorded(const char* path, const char* reason) {
    ArenaHeader* const arena = header;
    if (arena == nullptr || phase.load(std::memory_order_acquire) != Phase::active) return;
    char note[max_note_bytes];
    const int n = __builtin_snprintf(note, sizeof note, "%s%c%s", path, '\0', reason);
    if (n < 0 || static_cast<std::size_t>(n) >= sizeof note) return;
    const auto bytes = static_cast<std::uint32_t>(n) + 1;
    const std::uint32_t used =
        std::min(arena->notes_used.load(std::memory_order_acquire), std::uint32_t{notes_bytes});
    if (memmem(arena->notes, used, note, bytes) != nullptr) return;
    const std::uint32_t begin = arena->notes_used.fetch_add(bytes, std::memory_order_acq_rel);
    if (begin > notes_bytes || bytes > notes_bytes - begin) {
        arena->notes_used.fetch_sub(bytes, std::memory_order_acq_rel);
        arena->notes_left_out.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    memcpy(arena->notes + begin, note, bytes);
}

}  // namespace assay::heap
