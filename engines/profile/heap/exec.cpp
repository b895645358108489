// The hooks of the functions that start programs. A program that cannot be recorded is started
// without the hook library, which would end one of musl or with AddressSanitizer, and noted by
// name. So is a static one, whose own children nothing here could look at.
//
// They run in the child of a fork or a vfork too: nothing is allocated, locked, or changed but the
// notes, which are shared memory.
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdarg>

#include "profile/heap/notes.hpp"
#include "profile/heap/process.hpp"
#include "profile/heap/settings.hpp"
#include "profile/image/image.hpp"

namespace assay::heap {
namespace {

using Words = char* const*;

struct StartFunctions {
    int (*execve)(const char*, Words, Words);
    int (*execvpe)(const char*, Words, Words);
    int (*execveat)(int, const char*, Words, Words, int);
    int (*posix_spawn)(pid_t*, const char*, const posix_spawn_file_actions_t*,
                       const posix_spawnattr_t*, Words, Words);
    int (*posix_spawnp)(pid_t*, const char*, const posix_spawn_file_actions_t*,
                        const posix_spawnattr_t*, Words, Words);
};
StartFunctions real;

template <class F>
void resolve(F*& into, const char* name) {
    into = reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

// dlsym locks, which the child of a fork must not.
__attribute__((constructor(102))) void resolve_all() {
    if (*setting(directory_variable) == 0) return;
    resolve(real.execve, "execve");
    resolve(real.execvpe, "execvpe");
    resolve(real.execveat, "execveat");
    resolve(real.posix_spawn, "posix_spawn");
    resolve(real.posix_spawnp, "posix_spawnp");
}

template <class F>
F* resolved(F*& function, const char* name) {
    if (function == nullptr) resolve(function, name);
    return function;
}

constexpr char preload_name[] = "LD_PRELOAD=", library_name[] = "/libassay-heap.so",
               path_name[] = "PATH=";

// The length of the next library in the value of LD_PRELOAD, and whether it is this one.
std::size_t library_bytes(const char* list, bool& is_own) {
    const std::size_t n = strcspn(list, ": "), own = sizeof library_name - 1;
    is_own = n >= own && memcmp(list + n - own, library_name, own) == 0;
    return n;
}

// An environment without this library. The new one is in memory of the caller.
class Environment {
public:
    explicit Environment(Words words) : words_(words) {
        for (; words_ != nullptr && words_[count_] != nullptr; ++count_) {
            const char* const word = words_[count_];
            if (preload_ != nullptr || strncmp(word, preload_name, sizeof preload_name - 1) != 0)
                continue;
            for (const char* at = word + sizeof preload_name - 1; *at != 0;) {
                bool is_own = false;
                at += library_bytes(at, is_own);
                has_library_ |= is_own;
                at += *at != 0;
            }
            preload_ = word;
            preload_index_ = count_;
        }
    }
    bool has_library() const { return has_library_; }
    std::size_t words_bytes() const { return (count_ + 1) * sizeof(char*); }
    std::size_t preload_bytes() const { return strlen(preload_) + 1; }

    Words without_library(char** words, char* preload) const {
        memcpy(preload, preload_name, sizeof preload_name);
        char* to = preload + sizeof preload_name - 1;
        for (const char* at = preload_ + sizeof preload_name - 1; *at != 0;) {
            bool is_own = false;
            const std::size_t n = library_bytes(at, is_own);
            if (!is_own && n != 0) {
                if (to != preload + sizeof preload_name - 1) *to++ = ':';
                memcpy(to, at, n);
                to += n;
            }
            at += n + (at[n] != 0);
        }
        *to = 0;
        std::size_t count = 0;
        for (std::size_t k = 0; k < count_; ++k)
            if (k != preload_index_) words[count++] = words_[k];
            else if (to != preload + sizeof preload_name - 1) words[count++] = preload;
        words[count] = nullptr;
        return words;
    }

private:
    Words words_;
    std::size_t count_ = 0, preload_index_ = 0;
    const char* preload_ = nullptr;
    bool has_library_ = false;
};

const char* search_path() {
    for (Words word = environ; word != nullptr && *word != nullptr; ++word)
        if (strncmp(*word, path_name, sizeof path_name - 1) == 0)
            return *word + sizeof path_name - 1;
    return "/bin:/usr/bin";  // as the C library does
}

enum class Start : std::uint8_t {
    as_it_is,    // it records itself, or is not known
    unrecorded,  // with the environment that it is given
    without_library
};

// Decides how a program is started, and notes what is not recorded of it.
Start prepare(const char* path, const Environment& environment) {
    const ErrnoGuard errno_guard;
    struct stat status{};
    if (stat(path, &status) != 0 || !S_ISREG(status.st_mode) || (status.st_mode & 0111) == 0)
        return Start::as_it_is;
    const image::Obstacle obstacle = image::obstacle_of(path);
    const char* reason = image::reason(obstacle);
    if (obstacle == image::Obstacle::none) {
        if (!environment.has_library()) reason = "is started without LD_PRELOAD in its environment";
        else if (!can_create_arena()) reason = "runs as another user, who cannot write the buffers";
        else return Start::as_it_is;
    }
    note_unrecorded(path, reason);
    return environment.has_library() && obstacle != image::Obstacle::none ? Start::without_library
                                                                          : Start::unrecorded;
}

Start prepare_named(const char* name, const Environment& environment) {
    char path[PATH_MAX];
    const ErrnoGuard errno_guard;
    return image::find_program(name, search_path(), path, sizeof path) ? prepare(path, environment)
                                                                       : Start::as_it_is;
}

// Calls `call` with the environment that the program is to have.
template <class Call>
__attribute__((noinline)) int start_with(Words words, Start start, const Environment& environment,
                                         Call call) {
    if (start != Start::without_library) return call(words);
    auto** const changed = static_cast<char**>(__builtin_alloca(environment.words_bytes()));
    auto* const preload = static_cast<char*>(__builtin_alloca(environment.preload_bytes()));
    return call(environment.without_library(changed, preload));
}

// The same in this process, which ends here as far as it is recorded.
template <class Call>
int become(Words words, Start start, const Environment& environment, Call call) {
    if (start == Start::as_it_is) return call(words);
    note_exit();
    const int status = start_with(words, start, environment, call);
    withdraw_exit();
    return status;
}

int start_path(const char* path, Words argv, Words words) {
    if (path == nullptr) return resolved(real.execve, "execve")(path, argv, words);
    const Environment environment(words);
    return become(words, prepare(path, environment), environment, [=](Words changed) {
        return resolved(real.execve, "execve")(path, argv, changed);
    });
}

int start_named(const char* name, Words argv, Words words) {
    const Environment environment(words);
    return become(words, prepare_named(name, environment), environment, [=](Words changed) {
        return resolved(real.execvpe, "execvpe")(name, argv, changed);
    });
}

// Where the program of an open file or folder is found; `name` may be empty.
bool path_of(int fd, const char* name, char (&path)[PATH_MAX]) {
    const bool is_whole = *name == '/' || (fd == AT_FDCWD && *name != 0);
    const int n = is_whole     ? __builtin_snprintf(path, PATH_MAX, "%s", name)
                  : *name != 0 ? __builtin_snprintf(path, PATH_MAX, "/proc/self/fd/%d/%s", fd, name)
                               : __builtin_snprintf(path, PATH_MAX, "/proc/self/fd/%d", fd);
    if (n >= PATH_MAX) return false;
    if (*name != 0) return true;
    char target[PATH_MAX];  // the descriptor's number says nothing to a reader
    const ssize_t bytes = readlink(path, target, PATH_MAX - 1);
    if (bytes <= 0) return true;
    target[bytes] = 0;
    if (access(target, F_OK) == 0) memcpy(path, target, static_cast<std::size_t>(bytes) + 1);
    return true;
}

int start_in(int fd, const char* name, Words argv, Words words, int flags) {
    char path[PATH_MAX];
    const Environment environment(words);
    const Start start = path_of(fd, name, path) ? prepare(path, environment) : Start::as_it_is;
    return become(words, start, environment, [=](Words changed) {
        return resolved(real.execveat, "execveat")(fd, name, argv, changed, flags);
    });
}

}  // namespace
}  // namespace assay::heap

using namespace assay::heap;

#define ASSAY_HOOK extern "C" __attribute__((visibility("default"), noinline))

ASSAY_HOOK int execve(const char* path, Words argv, Words words) noexcept {
    return start_path(path, argv, words);
}
ASSAY_HOOK int execv(const char* path, Words argv) noexcept {
    return start_path(path, argv, environ);
}
ASSAY_HOOK int execvp(const char* name, Words argv) noexcept {
    return start_named(name, argv, environ);
}
ASSAY_HOOK int execvpe(const char* name, Words argv, Words words) noexcept {
    return start_named(name, argv, words);
}
ASSAY_HOOK int fexecve(int fd, Words argv, Words words) noexcept {
    return start_in(fd, "", argv, words, AT_EMPTY_PATH);
}
ASSAY_HOOK int execveat(int fd, const char* name, Words argv, Words words, int flags) noexcept {
    return start_in(fd, name, argv, words, flags);
}

// The words of an argument list, and what comes after its null.
#define ASSAY_WORDS(first, argv, rest)                                                         \
    std::va_list rest;                                                                         \
    va_start(rest, first);                                                                     \
    std::size_t count = 1;                                                                     \
    for (const char* word = first; word != nullptr; word = va_arg(rest, const char*)) ++count; \
    va_end(rest);                                                                              \
    auto** const argv = static_cast<char**>(__builtin_alloca(count * sizeof(char*)));          \
    va_start(rest, first);                                                                     \
    argv[0] = const_cast<char*>(first);                                                        \
    for (std::size_t k = 1; k < count; ++k) argv[k] = va_arg(rest, char*)

ASSAY_HOOK int execl(const char* path, const char* first, ...) noexcept {
    ASSAY_WORDS(first, argv, rest);
    va_end(rest);
    return start_path(path, argv, environ);
}
ASSAY_HOOK int execlp(const char* name, const char* first, ...) noexcept {
    ASSAY_WORDS(first, argv, rest);
    va_end(rest);
    return start_named(name, argv, environ);
}
ASSAY_HOOK int execle(const char* path, const char* first, ...) noexcept {
    ASSAY_WORDS(first, argv, rest);
    Words words = va_arg(rest, char**);
    va_end(rest);
    return start_path(path, argv, words);
}

ASSAY_HOOK int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                           const posix_spawnattr_t* attributes, Words argv, Words words) {
    const Environment environment(words);
    return start_with(words, prepare(path, environment), environment, [=](Words changed) {
        return resolved(real.posix_spawn, "posix_spawn")(pid, path, actions, attributes, argv,
                                                         changed);
    });
}
ASSAY_HOOK int posix_spawnp(pid_t* pid, const char* name, const posix_spawn_file_actions_t* actions,
                            const posix_spawnattr_t* attributes, Words argv, Words words) {
    const Environment environment(words);
    return start_with(words, prepare_named(name, environment), environment, [=](Words changed) {
        return resolved(real.posix_spawnp, "posix_spawnp")(pid, name, actions, attributes, argv,
                                                           changed);
    });
}
