// Reads ELF headers, program headers and dynamic names of an executable to find obstacles to
// LD_PRELOAD.
#include "preload/obstacle.hpp"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

namespace assay::preload {
namespace {

// Limit of nested interpreters of scripts in the kernel (fs/exec.c).
constexpr int max_interpreters = 4;
constexpr unsigned max_segments = 64, max_dynamic = 512;
constexpr std::uint64_t max_names_bytes = 16 << 20;

#if defined(__x86_64__)
constexpr unsigned native_machine = EM_X86_64;
#else
constexpr unsigned native_machine = EM_AARCH64;
#endif

// Only regular files are opened, since opening a device or a pipe can have side effects.
bool is_regular(const char* path) {
    struct stat status{};
    return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

// A file that is read in parts.
class File {
public:
    explicit File(const char* path)
        : fd_(is_regular(path) ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1) {}
    ~File() {
        if (fd_ >= 0) close(fd_);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;

    int fd() const { return fd_; }
    // Returns the number of bytes read.
    std::size_t read(std::uint64_t offset, void* buffer, std::size_t bytes) const {
        if (offset > static_cast<std::uint64_t>(INT64_MAX) - bytes) return 0;
        const ssize_t n = pread(fd_, buffer, bytes, static_cast<off_t>(offset));
        return n > 0 ? static_cast<std::size_t>(n) : 0;
    }
    template <class T>
    bool read_object(std::uint64_t offset, T& buffer) const {
        return read(offset, &buffer, sizeof buffer) == sizeof buffer;
    }

private:
    int fd_;
};

bool is_privileged(const File& file) {
    struct stat status{};
    if (fstat(file.fd(), &status) != 0) return false;
    if ((status.st_mode & S_ISUID) != 0 && status.st_uid != getuid()) return true;
    // Without the group's execute permission, S_ISGID marks mandatory locking.
    if ((status.st_mode & S_ISGID) != 0 && (status.st_mode & S_IXGRP) != 0 &&
        status.st_gid != getgid())
        return true;
    // For root, file capabilities have no effect.
    return getuid() != 0 && fgetxattr(file.fd(), "security.capability", nullptr, 0) > 0;
}

// The position in the file of the dynamic string table: names of libraries and of dynamic symbols.
struct Names {
    std::uint64_t offset = 0, bytes = 0;
};

struct Segments {
    bool has_segments = false;
    std::optional<Elf64_Phdr> loader, dynamic;
};

Segments find_segments(const File& file, const Elf64_Ehdr& header) {
    Segments segments;
    for (unsigned k = 0; k < std::min<unsigned>(header.e_phnum, max_segments); ++k) {
        Elf64_Phdr segment;
        if (!file.read_object(header.e_phoff + k * sizeof segment, segment)) break;
        segments.has_segments = true;
        if (segment.p_type == PT_INTERP) segments.loader = segment;
        if (segment.p_type == PT_DYNAMIC) segments.dynamic = segment;
    }
    return segments;
}

Names find_dynamic_names(const File& file, const Elf64_Ehdr& header, const Elf64_Phdr& dynamic) {
    std::uint64_t address = 0, bytes = 0;
    for (unsigned k = 0;
         k < std::min<std::uint64_t>(dynamic.p_filesz / sizeof(Elf64_Dyn), max_dynamic); ++k) {
        Elf64_Dyn entry;
        if (!file.read_object(dynamic.p_offset + k * sizeof entry, entry)) break;
        if (entry.d_tag == DT_NULL) break;
        if (entry.d_tag == DT_STRTAB) address = entry.d_un.d_ptr;
        if (entry.d_tag == DT_STRSZ) bytes = entry.d_un.d_val;
    }
    for (unsigned k = 0; k < std::min<unsigned>(header.e_phnum, max_segments); ++k) {
        Elf64_Phdr segment;
        if (!file.read_object(header.e_phoff + k * sizeof segment, segment)) break;
        if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
            address - segment.p_vaddr < segment.p_filesz)
            return {segment.p_offset + (address - segment.p_vaddr),
                    std::min(bytes, max_names_bytes)};
    }
    return {};
}

struct SanitizerMark {
    const char* name;
    PreloadObstacle obstacle;
};
// Names that show a sanitizer: run-time functions, which clang links into the program, and library
// names, which gcc uses.
constexpr SanitizerMark sanitizer_marks[] = {{"__asan_init", PreloadObstacle::address_sanitizer},
                                             {"libasan.so", PreloadObstacle::address_sanitizer},
                                             {"__tsan_init", PreloadObstacle::thread_sanitizer},
                                             {"libtsan.so", PreloadObstacle::thread_sanitizer},
                                             {"__msan_init", PreloadObstacle::memory_sanitizer}};
// "assay numa cc" compiles with ThreadSanitizer's calls and links this library instead of its own.
constexpr const char* counting_library = "libassay-numa-exact.so";

PreloadObstacle find_sanitizer(const File& file, const Names& names) {
    constexpr std::size_t part_bytes = 4096, overlap = 32;  // overlap: at least the longest mark
    char part[part_bytes];
    PreloadObstacle found = PreloadObstacle::none;
    for (std::uint64_t done = 0; done < names.bytes; done += part_bytes - overlap) {
        const std::size_t n = file.read(names.offset + done, part,
                                        std::min<std::uint64_t>(part_bytes, names.bytes - done));
        const auto has = [&](const char* name) {
            return memmem(part, n, name, strlen(name)) != nullptr;
        };
        if (has(counting_library)) return PreloadObstacle::none;
        for (const SanitizerMark& mark : sanitizer_marks)
            if (found == PreloadObstacle::none && has(mark.name)) found = mark.obstacle;
        if (n < part_bytes) break;
    }
    return found;
}

PreloadObstacle find_obstacle_in(const File& file) {
    Elf64_Ehdr header;
    if (!file.read_object(0, header) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
        return PreloadObstacle::none;
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != native_machine)
        return PreloadObstacle::other_machine;
    if (header.e_phentsize != sizeof(Elf64_Phdr)) return PreloadObstacle::none;
    const Segments segments = find_segments(file, header);
    if (!segments.has_segments) return PreloadObstacle::none;
    if (!segments.loader) return PreloadObstacle::statically_linked;
    char loader[PATH_MAX] = {};
    file.read(segments.loader->p_offset, loader,
              std::min<std::uint64_t>(segments.loader->p_filesz, sizeof loader - 1));
    if (strstr(loader, "ld-musl") != nullptr) return PreloadObstacle::musl;
    const PreloadObstacle sanitizer =
        segments.dynamic ? find_sanitizer(file, find_dynamic_names(file, header, *segments.dynamic))
                         : PreloadObstacle::none;
    if (sanitizer != PreloadObstacle::none) return sanitizer;
    return is_privileged(file) ? PreloadObstacle::privileged : PreloadObstacle::none;
}

// Reads the interpreter of a script, without its arguments. Returns false if the file is not a
// script.
bool read_interpreter(const File& file, char (&path)[PATH_MAX]) {
    char line[256] = {};  // as much as the kernel reads (BINPRM_BUF_SIZE)
    if (file.read(0, line, sizeof line - 1) < 3 || line[0] != '#' || line[1] != '!') return false;
    const char* begin = line + 2 + strspn(line + 2, " \t");
    const std::size_t n = strcspn(begin, " \t\n");
    memcpy(path, begin, n);
    path[n] = 0;
    return n != 0;
}

}  // namespace

PreloadObstacle obstacle_of(const char* path) {
    char interpreter[PATH_MAX];
    for (int k = 0; k <= max_interpreters; ++k) {
        const File file(path);
        if (file.fd() < 0) return PreloadObstacle::none;
        if (!read_interpreter(file, interpreter)) return find_obstacle_in(file);
        path = interpreter;
    }
    return PreloadObstacle::none;
}

PreloadObstacle obstacle_of_command(const char* name) {
    char path[PATH_MAX];
    const char* search = getenv("PATH");
    return find_program(name, search != nullptr ? search : "/bin:/usr/bin", path, sizeof path)
               ? obstacle_of(path)
               : PreloadObstacle::none;
}

const char* reason(PreloadObstacle obstacle) {
    switch (obstacle) {
        case PreloadObstacle::statically_linked:
            return "is statically linked: nothing can be loaded into it, nor into what it starts";
        case PreloadObstacle::privileged:
            return "is setuid, setgid or has capabilities: the loader loads nothing into it";
        case PreloadObstacle::musl: return "uses the C library musl; Assay's library needs glibc";
        case PreloadObstacle::address_sanitizer:
            return "is built with AddressSanitizer, whose library must be the only one; build it "
                   "without";
        case PreloadObstacle::thread_sanitizer:
            return "is built with ThreadSanitizer, whose library must be the only one; build it "
                   "without";
        case PreloadObstacle::memory_sanitizer:
            return "is built with MemorySanitizer, whose library must be the only one; build it "
                   "without";
        case PreloadObstacle::other_machine:
            return "is of 32 bits or for another processor; Assay is for this one";
        case PreloadObstacle::none: break;
    }
    return "";
}

bool find_program(const char* name, const char* search, char* path, std::size_t bytes) {
    if (strchr(name, '/') != nullptr) {
        if (strlen(name) >= bytes) return false;
        memcpy(path, name, strlen(name) + 1);
        return access(path, X_OK) == 0;
    }
    const std::size_t name_bytes = strlen(name) + 1;
    for (const char* folder = search; *name != 0;) {
        const std::size_t n = strcspn(folder, ":");
        if (n + 1 + name_bytes <= bytes) {
            memcpy(path, folder, n);
            std::size_t end = n;
            if (n != 0) path[end++] = '/';  // an empty folder is the current one
            memcpy(path + end, name, name_bytes);
            struct stat status{};
            if (access(path, X_OK) == 0 && stat(path, &status) == 0 && S_ISREG(status.st_mode))
                return true;
        }
        if (folder[n] == 0) return false;
        folder += n + 1;
    }
    return false;
}

}  // namespace assay::preload
