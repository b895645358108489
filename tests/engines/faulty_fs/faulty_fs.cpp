// A preloaded library that simulates faults of a file system, for the files that a pattern selects.
// It can also log the calls on these files. Environment variables:
//
//     FAULTY_FS_FILES=GLOB      the files, by their absolute path
//     FAULTY_FS=CALL:ERRNO,...  these calls fail; CALL is open, read, write or sync
//     FAULTY_FS=CALL:SLEEPn     these calls take n ms longer
//     FAULTY_FS=CALL:HOLD       these calls wait until PATH is removed
//     FAULTY_FS=CALL:HOLDERRNO  they wait, and then fail
//     FAULTY_FS=readdir:HIDE    listings of a directory leave the files out
//     FAULTY_FS_TYPE=HEX        the files are on a file system of this type, see statfs(2)
//     FAULTY_FS_WHILE=PATH      faults occur only while PATH exists
//     FAULTY_FS_ONCE=1          a fault removes PATH, so that only one call of all processes fails
//     FAULTY_FS_RANK=RANK       faults occur in this rank only
//     FAULTY_FS_LOG=PATH        a line for each call: process id, event, result, offset in the file
//                               (-1: none), its inode (0: none), its path at this moment
//     FAULTY_FS_LOG_RANK=RANK   the log has the event "rank" with this result before a process's
//                               first call: a drain belongs to the node of this rank
//     FAULTY_FS_MEET=PATH       if two ranks call statx within 5 ms, both calls return at the same
//                               time, and the accelerator's sched_yield returns at once, so that
//                               race conditions occur. PATH is a file that the ranks share.
//
// Events in the log: "wrote" and "read" after such a call, with its result (negative errno for a
// planted fault); "syncing" before a sync, "synced" or "failed" after it; "opened" for a planted
// fault of an open. So the order of the lines shows which data a sync can have reached.
//
// The library replaces the calls of libc by its own functions of the same name, as preloaded
// libraries do, and reaches the real ones by dlsym(RTLD_NEXT). Its own log goes through syscall().
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

struct NamedErrno {
    const char* name;
    int value;
};
constexpr NamedErrno errno_names[] = {{"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT},
                                      {"EROFS", EROFS},   {"EMFILE", EMFILE}, {"ESTALE", ESTALE},
                                      {"EACCES", EACCES}, {"EBADF", EBADF},   {"ENOENT", ENOENT}};

// The environment variable, or an empty string.
const char* environment_variable(const char* name) {
    const char* text = std::getenv(name);
    return text ? text : "";
}

bool is_selected(const char* path) {
    const char* files = environment_variable("FAULTY_FS_FILES");
    return *files && *path && fnmatch(files, path, 0) == 0;
}

// The present path of the file, which may have been renamed.
std::string path_of(int fd) {
    char link[64], path[PATH_MAX];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof path);
    return length > 0 ? std::string(path, static_cast<std::size_t>(length)) : "";
}

bool in_this_rank() {
    const char* selected_rank = environment_variable("FAULTY_FS_RANK");
    if (!*selected_rank) return true;
    for (const char* name : {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"})
        if (const char* rank = std::getenv(name)) return std::strcmp(rank, selected_rank) == 0;
    return false;
}

// The errno that is planted for a call, or 0. A planted delay takes place here.
int planted_errno(const std::string& call) {
    const std::string rules = "," + std::string(environment_variable("FAULTY_FS")) + ",";
    const auto rule = rules.find("," + call + ":");
    if (rule == std::string::npos || !in_this_rank()) return 0;
    const char* condition = environment_variable("FAULTY_FS_WHILE");
    if (*condition && access(condition, F_OK)) return 0;
    if (*condition && *environment_variable("FAULTY_FS_ONCE") && unlink(condition)) return 0;
    const auto begin = rule + call.size() + 2;
    std::string name = rules.substr(begin, rules.find(',', begin) - begin);
    if (name.starts_with("SLEEP")) {
        usleep(static_cast<useconds_t>(std::atoi(name.c_str() + 5)) * 1000);
        return 0;
    }
    if (name.starts_with("HOLD")) {
        while (!access(condition, F_OK)) usleep(5000);
        if (name == "HOLD") return 0;
        name.erase(0, 4);
    }
    for (const auto& [errno_name, value] : errno_names)
        if (name == errno_name) return value;
    std::fprintf(stderr, "faulty_fs: FAULTY_FS has the unknown errno %s\n", name.c_str());
    std::abort();
}

unsigned long inode_of(int fd) {
    struct stat info;
    return fstat(fd, &info) ? 0 : info.st_ino;
}

void log(const char* event, long result, const std::string& path, long offset = -1,
         unsigned long inode = 0) {
    const char* file = environment_variable("FAULTY_FS_LOG");
    if (!*file) return;
    static std::atomic<pid_t> announced{0};
    const pid_t process = getpid();
    const char* rank = environment_variable("FAULTY_FS_LOG_RANK");
    if (*rank && announced.exchange(process) != process) log("rank", std::atol(rank), "-");
    const auto fd = static_cast<int>(
        syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    const std::string line = std::to_string(process) + " " + event + " " + std::to_string(result) +
                             " " + std::to_string(offset) + " " + std::to_string(inode) + " " +
                             path + "\n";
    if (fd < 0 || syscall(SYS_write, fd, line.data(), line.size()) < 0) std::abort();
    syscall(SYS_close, fd);
}

// Performs a read or write, or a planted fault. `call` makes the real call, `kind` is its name in
// FAULTY_FS, `event` is logged. `offset`: the offset in the file; -1: that of the descriptor.
template <class Call>
ssize_t transfer(const char* kind, const char* event, int fd, long offset, Call call) {
    const int saved_errno = errno;
    const std::string path = path_of(fd);
    if (!is_selected(path.c_str())) {
        errno = saved_errno;
        return call();
    }
    if (const int fault = planted_errno(kind)) {
        log(event, -fault, path, -1, inode_of(fd));
        errno = fault;
        return -1;
    }
    if (offset < 0) offset = lseek(fd, 0, SEEK_CUR);
    errno = saved_errno;
    const ssize_t result = call();
    const int call_errno = errno;
    log(event, result, path, offset, inode_of(fd));
    errno = call_errno;
    return result;
}

template <class Call>
int synchronize(int fd, Call call) {
    const std::string path = path_of(fd);
    if (!is_selected(path.c_str())) return call();
    log("syncing", 0, path, -1, inode_of(fd));
    const int fault = planted_errno("sync");
    const int result = fault ? -1 : call();
    const int error = fault ? fault : errno;
    log(result ? "failed" : "synced", result, path, -1, inode_of(fd));
    errno = error;
    return result;
}

// Whether an open is planted to fail; sets errno then. The path may be a link, such as
// /proc/PID/fd/N, so it is resolved before it is compared with the pattern.
bool open_fails(const char* path) {
    const int saved_errno = errno;
    char resolved[PATH_MAX];
    const char* name = realpath(path, resolved) ? resolved : path;
    const int fault = is_selected(name) ? planted_errno("open") : 0;
    if (fault) log("opened", -fault, name);
    errno = fault ? fault : saved_errno;
    return fault != 0;
}

bool is_hidden(DIR* folder, const char* name) {
    return std::strstr(environment_variable("FAULTY_FS"), "readdir:HIDE") && in_this_rank() &&
           is_selected((path_of(dirfd(folder)) + "/" + name).c_str());
}

// A barrier of two processes with a limit of 5 ms. The processes spin, so that both run when they
// leave it.
void meet_other_rank() {
    static std::atomic<unsigned>* const arrived = []() -> std::atomic<unsigned>* {
        const char* path = environment_variable("FAULTY_FS_MEET");
        if (!*path) return nullptr;
        const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0 || ftruncate(fd, 4096)) std::abort();
        void* map = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        if (map == MAP_FAILED) std::abort();
        return static_cast<std::atomic<unsigned>*>(map);
    }();
    if (!arrived) return;
    // Arrivals 0 and 1 are a pair, 2 and 3 the next. `pair` is the count when this pair is
    // complete.
    const unsigned pair = (arrived->fetch_add(1) | 1) + 1;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
    while (static_cast<int>(arrived->load() - pair) < 0)
        if (std::chrono::steady_clock::now() > limit) {
            // No partner has come: counts as the partner, so that the next arrival begins a pair.
            unsigned without_partner = pair - 1;
            arrived->compare_exchange_strong(without_partner, pair);
            return;
        }
}

// Whether the calling code is in the accelerator's library. The last answer is cached, because a
// process that spins calls this many times with the same address.
bool is_accelerator(void* address) {
    thread_local void* last_address = nullptr;
    thread_local bool last_answer = false;
    if (address == last_address) return last_answer;
    Dl_info library{};
    last_address = address;
    last_answer = dladdr(address, &library) && library.dli_fname &&
                  std::strstr(library.dli_fname, "libassay-io");
    return last_answer;
}

// The function of this name that the next library defines, which is libc's.
template <class Function>
Function* next_definition(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

// Programs compiled with _FILE_OFFSET_BITS=64 call the names that end in 64.
#define TRANSFER(name, kind, event, parameters, ...)                             \
    ssize_t name parameters {                                                    \
        static const auto real = next_definition<ssize_t parameters>(#name);     \
        return transfer(kind, event, fd, -1, [&] { return real(__VA_ARGS__); }); \
    }
#define TRANSFER_AT(name, kind, event, parameters, ...)                              \
    ssize_t name parameters {                                                        \
        static const auto real = next_definition<ssize_t parameters>(#name);         \
        return transfer(kind, event, fd, offset, [&] { return real(__VA_ARGS__); }); \
    }
#define SYNCHRONIZE(name)                                          \
    int name(int fd) {                                             \
        static const auto real = next_definition<int(int)>(#name); \
        return synchronize(fd, [&] { return real(fd); });          \
    }
#define OPEN(name)                                                                   \
    int name(const char* path, int flags, ...) {                                     \
        static const auto real = next_definition<int(const char*, int, ...)>(#name); \
        va_list arguments;                                                           \
        va_start(arguments, flags);                                                  \
        const mode_t mode = va_arg(arguments, mode_t);                               \
        va_end(arguments);                                                           \
        return open_fails(path) ? -1 : real(path, flags, mode);                      \
    }
#define OPENAT(name)                                                                      \
    int name(int folder, const char* path, int flags, ...) {                              \
        static const auto real = next_definition<int(int, const char*, int, ...)>(#name); \
        va_list arguments;                                                                \
        va_start(arguments, flags);                                                       \
        const mode_t mode = va_arg(arguments, mode_t);                                    \
        va_end(arguments);                                                                \
        return open_fails(path) ? -1 : real(folder, path, flags, mode);                   \
    }

extern "C" {
TRANSFER(write, "write", "wrote", (int fd, const void* data, size_t bytes), fd, data, bytes)
TRANSFER(writev, "write", "wrote", (int fd, const iovec* parts, int count), fd, parts, count)
TRANSFER_AT(pwrite, "write", "wrote", (int fd, const void* data, size_t bytes, off_t offset), fd,
            data, bytes, offset)
TRANSFER_AT(pwrite64, "write", "wrote", (int fd, const void* data, size_t bytes, off64_t offset),
            fd, data, bytes, offset)
TRANSFER_AT(pwritev, "write", "wrote", (int fd, const iovec* parts, int count, off_t offset), fd,
            parts, count, offset)
TRANSFER_AT(pwritev64, "write", "wrote", (int fd, const iovec* parts, int count, off64_t offset),
            fd, parts, count, offset)
TRANSFER_AT(pwritev2, "write", "wrote",
            (int fd, const iovec* parts, int count, off_t offset, int flags), fd, parts, count,
            offset, flags)
TRANSFER(read, "read", "read", (int fd, void* data, size_t bytes), fd, data, bytes)
TRANSFER(readv, "read", "read", (int fd, const iovec* parts, int count), fd, parts, count)
TRANSFER_AT(pread, "read", "read", (int fd, void* data, size_t bytes, off_t offset), fd, data,
            bytes, offset)
TRANSFER_AT(pread64, "read", "read", (int fd, void* data, size_t bytes, off64_t offset), fd, data,
            bytes, offset)
TRANSFER_AT(preadv, "read", "read", (int fd, const iovec* parts, int count, off_t offset), fd,
            parts, count, offset)
TRANSFER_AT(preadv64, "read", "read", (int fd, const iovec* parts, int count, off64_t offset), fd,
            parts, count, offset)
dirent* readdir(DIR* folder) {
    static const auto real = next_definition<dirent*(DIR*)>("readdir");
    dirent* entry = real(folder);
    while (entry && is_hidden(folder, entry->d_name)) entry = real(folder);
    return entry;
}
int statx(int folder, const char* path, int flags, unsigned mask, struct statx* info) {
    static const auto real =
        next_definition<int(int, const char*, int, unsigned, struct statx*)>("statx");
    const int result = real(folder, path, flags, mask, info);
    if (is_accelerator(__builtin_return_address(0)) && !*path &&
        is_selected(path_of(folder).c_str()))
        meet_other_rank();
    return result;
}
int fstatfs(int fd, struct statfs* info) {
    static const auto real = next_definition<int(int, struct statfs*)>("fstatfs");
    const int result = real(fd, info);
    const char* type = environment_variable("FAULTY_FS_TYPE");
    if (*type && is_selected(path_of(fd).c_str()))
        info->f_type = static_cast<decltype(info->f_type)>(std::strtoul(type, nullptr, 16));
    return result;
}
int sched_yield() {
    static const auto real = next_definition<int()>("sched_yield");
    static const bool spin = *environment_variable("FAULTY_FS_MEET") != 0;
    return spin && is_accelerator(__builtin_return_address(0)) ? 0 : real();
}
SYNCHRONIZE(fsync)
SYNCHRONIZE(fdatasync)
SYNCHRONIZE(syncfs)
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
}
