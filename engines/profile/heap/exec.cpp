// The hooks of the functions that start programs (exec and posix_spawn). A program that cannot be
// recorded is started without the hook library, since the library would end a program that uses
// musl or AddressSanitizer. The same holds for a static program. The path of such a program is
// noted.
//
// The hooks also run in the child of a fork or a vfork, so they neither allocate nor lock, and they
// change only the notes, which are in shared memory.
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

using StringArray = char* const*;

struct StartFunctions {
    int (*execve)(const char*, StringArray, StringArray);
    int (*execvpe)(const char*, StringArray, StringArray);
    int (*execveat)(int, const char*, StringArray, StringArray, int);
    int (*posix_spawn)(pid_t*, const char*, const posix_spawn_file_actions_t*,
                       const posix_spawnattr_t*, StringArray, StringArray);
    int (*posix_spawnp)(pid_t*, const char*, const posix_spawn_file_actions_t*,
                        const posix_spawnattr_t*, StringArray, StringArray);
};
StartFunctions real;

template <class F>
void resolve(F*& function, const char* name) {
    function = reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

// Resolves the functions at load time, since dlsym takes a lock, which the child of a fork must
// not.
__attribute__((constructor(102))) void resolve_functions() {
    if (*setting(directory_variable) == 0) return;
    resolve(real.execve, "execve");
    resolve(real.execvpe, "execvpe");
    resolve(real.execveat, "execveat");
    resolve(real.posix_spawn, "posix_spawn");
    resolve(real.posix_spawnp, "posix_spawnp");
}

template <class F>
F* get_function(F*& function, const char* name) {
    if (function == nullptr) resolve(function, name);
    return function;
}

constexpr char preload_name[] = "LD_PRELOAD=", library_name[] = "/libassay-heap.so",
               path_name[] = "PATH=";

// Returns the length of the next library in the value of LD_PRELOAD, and whether it is the hook
// library.
std::size_t parse_library(const char* list, bool& is_hook_library) {
    const std::size_t n = strcspn(list, ": "), library_length = sizeof library_name - 1;
    is_hook_library =
        n >= library_length && memcmp(list + n - library_length, library_name, library_length) == 0;
    return n;
}

// An environment, and a copy of it without the hook library in LD_PRELOAD, in memory of the caller.
class Environment {
public:
    explicit Environment(StringArray variables) : variables_(variables) {
        for (; variables_ != nullptr && variables_[count_] != nullptr; ++count_) {
            const char* const variable = variables_[count_];
            if (preload_ != nullptr ||
                strncmp(variable, preload_name, sizeof preload_name - 1) != 0)
                continue;
            for (const char* cursor = variable + sizeof preload_name - 1; *cursor != 0;) {
                bool is_hook_library = false;
                cursor += parse_library(cursor, is_hook_library);
                has_library_ |= is_hook_library;
                cursor += *cursor != 0;
            }
            preload_ = variable;
            preload_index_ = count_;
        }
    }
    bool has_library() const { return has_library_; }
    std::size_t array_bytes() const { return (count_ + 1) * sizeof(char*); }
    std::size_t preload_bytes() const { return strlen(preload_) + 1; }

    StringArray without_library(char** variables, char* preload) const {
        memcpy(preload, preload_name, sizeof preload_name);
        char* end = preload + sizeof preload_name - 1;
        for (const char* cursor = preload_ + sizeof preload_name - 1; *cursor != 0;) {
            bool is_hook_library = false;
            const std::size_t n = parse_library(cursor, is_hook_library);
            if (!is_hook_library && n != 0) {
                if (end != preload + sizeof preload_name - 1) *end++ = ':';
                memcpy(end, cursor, n);
                end += n;
            }
            cursor += n + (cursor[n] != 0);
        }
        *end = 0;
        std::size_t count = 0;
        for (std::size_t k = 0; k < count_; ++k)
            if (k != preload_index_) variables[count++] = variables_[k];
            else if (end != preload + sizeof preload_name - 1) variables[count++] = preload;
        variables[count] = nullptr;
        return variables;
    }

private:
    StringArray variables_;
    std::size_t count_ = 0, preload_index_ = 0;
    const char* preload_ = nullptr;
    bool has_library_ = false;
};

const char* search_path() {
    for (StringArray variable = environ; variable != nullptr && *variable != nullptr; ++variable)
        if (strncmp(*variable, path_name, sizeof path_name - 1) == 0)
            return *variable + sizeof path_name - 1;
    return "/bin:/usr/bin";  // the default of the C library
}

enum class StartMode : std::uint8_t {
    unchanged,   // it will be recorded, or it is unknown
    unrecorded,  // with an unchanged environment
    without_library
};

// Decides how a program is started, and notes it if it will not be recorded.
StartMode prepare(const char* path, const Environment& environment) {
    const ErrnoGuard errno_guard;
    struct stat status{};
    if (stat(path, &status) != 0 || !S_ISREG(status.st_mode) || (status.st_mode & 0111) == 0)
        return StartMode::unchanged;
    const image::PreloadObstacle obstacle = image::obstacle_of(path);
    const char* reason = image::reason(obstacle);
    if (obstacle == image::PreloadObstacle::none) {
        if (!environment.has_library()) reason = "is started without LD_PRELOAD in its environment";
        else if (!can_create_arena()) reason = "runs as another user, who cannot write the buffers";
        else return StartMode::unchanged;
    }
    note_unrecorded(path, reason);
    return environment.has_library() && obstacle != image::PreloadObstacle::none
               ? StartMode::without_library
               : StartMode::unrecorded;
}

StartMode prepare_program(const char* name, const Environment& environment) {
    char path[PATH_MAX];
    const ErrnoGuard errno_guard;
    return image::find_program(name, search_path(), path, sizeof path) ? prepare(path, environment)
                                                                       : StartMode::unchanged;
}

// Calls `call` with the environment for the program.
template <class Call>
__attribute__((noinline)) int call_with_environment(StringArray variables, StartMode mode,
                                                    const Environment& environment, Call call) {
    if (mode != StartMode::without_library) return call(variables);
    auto** const new_variables = static_cast<char**>(__builtin_alloca(environment.array_bytes()));
    auto* const preload = static_cast<char*>(__builtin_alloca(environment.preload_bytes()));
    return call(environment.without_library(new_variables, preload));
}

// Like call_with_environment(), for an exec in this process, whose recording ends here.
template <class Call>
int replace_process(StringArray variables, StartMode mode, const Environment& environment,
                    Call call) {
    if (mode == StartMode::unchanged) return call(variables);
    note_exit();
    const int status = call_with_environment(variables, mode, environment, call);
    cancel_exit();
    return status;
}

int exec_path(const char* path, StringArray argv, StringArray variables) {
    if (path == nullptr) return get_function(real.execve, "execve")(path, argv, variables);
    const Environment environment(variables);
    return replace_process(
        variables, prepare(path, environment), environment, [=](StringArray new_variables) {
            return get_function(real.execve, "execve")(path, argv, new_variables);
        });
}

int exec_program(const char* name, StringArray argv, StringArray variables) {
    const Environment environment(variables);
    return replace_process(
        variables, prepare_program(name, environment), environment, [=](StringArray new_variables) {
            return get_function(real.execvpe, "execvpe")(name, argv, new_variables);
        });
}

// The path of a program relative to an open folder, or of an open file if `name` is empty. Returns
// false if it is too long.
bool resolve_path(int fd, const char* name, char (&path)[PATH_MAX]) {
    const bool is_plain_path = *name == '/' || (fd == AT_FDCWD && *name != 0);
    const int n = is_plain_path ? __builtin_snprintf(path, PATH_MAX, "%s", name)
                  : *name != 0 ? __builtin_snprintf(path, PATH_MAX, "/proc/self/fd/%d/%s", fd, name)
                               : __builtin_snprintf(path, PATH_MAX, "/proc/self/fd/%d", fd);
    if (n >= PATH_MAX) return false;
    if (*name != 0) return true;
    char target[PATH_MAX];  // notes show the target instead of the descriptor's number
    const ssize_t bytes = readlink(path, target, PATH_MAX - 1);
    if (bytes <= 0) return true;
    target[bytes] = 0;
    if (access(target, F_OK) == 0) memcpy(path, target, static_cast<std::size_t>(bytes) + 1);
    return true;
}

int exec_at(int fd, const char* name, StringArray argv, StringArray variables, int flags) {
    char path[PATH_MAX];
    const Environment environment(variables);
    const StartMode mode =
        resolve_path(fd, name, path) ? prepare(path, environment) : StartMode::unchanged;
    return replace_process(variables, mode, environment, [=](StringArray new_variables) {
        return get_function(real.execveat, "execveat")(fd, name, argv, new_variables, flags);
    });
}

}  // namespace
}  // namespace assay::heap

using namespace assay::heap;

#define ASSAY_HOOK extern "C" __attribute__((visibility("default"), noinline))

ASSAY_HOOK int execve(const char* path, StringArray argv, StringArray variables) noexcept {
    return exec_path(path, argv, variables);
}
ASSAY_HOOK int execv(const char* path, StringArray argv) noexcept {
    return exec_path(path, argv, environ);
}
ASSAY_HOOK int execvp(const char* name, StringArray argv) noexcept {
    return exec_program(name, argv, environ);
}
ASSAY_HOOK int execvpe(const char* name, StringArray argv, StringArray variables) noexcept {
    return exec_program(name, argv, variables);
}
ASSAY_HOOK int fexecve(int fd, StringArray argv, StringArray variables) noexcept {
    return exec_at(fd, "", argv, variables, AT_EMPTY_PATH);
}
ASSAY_HOOK int execveat(int fd, const char* name, StringArray argv, StringArray variables,
                        int flags) noexcept {
    return exec_at(fd, name, argv, variables, flags);
}

// Copies a variadic argument list into the array `argv`. `rest` then follows the terminating null.
#define ASSAY_ARGUMENT_LIST(first, argv, rest)                                                    \
    std::va_list rest;                                                                            \
    va_start(rest, first);                                                                        \
    std::size_t count = 1;                                                                        \
    for (const char* variable = first; variable != nullptr; variable = va_arg(rest, const char*)) \
        ++count;                                                                                  \
    va_end(rest);                                                                                 \
    auto** const argv = static_cast<char**>(__builtin_alloca(count * sizeof(char*)));             \
    va_start(rest, first);                                                                        \
    argv[0] = const_cast<char*>(first);                                                           \
    for (std::size_t k = 1; k < count; ++k) argv[k] = va_arg(rest, char*)

ASSAY_HOOK int execl(const char* path, const char* first, ...) noexcept {
    ASSAY_ARGUMENT_LIST(first, argv, rest);
    va_end(rest);
    return exec_path(path, argv, environ);
}
ASSAY_HOOK int execlp(const char* name, const char* first, ...) noexcept {
    ASSAY_ARGUMENT_LIST(first, argv, rest);
    va_end(rest);
    return exec_program(name, argv, environ);
}
ASSAY_HOOK int execle(const char* path, const char* first, ...) noexcept {
    ASSAY_ARGUMENT_LIST(first, argv, rest);
    StringArray variables = va_arg(rest, char**);
    va_end(rest);
    return exec_path(path, argv, variables);
}

ASSAY_HOOK int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                           const posix_spawnattr_t* attributes, StringArray argv,
                           StringArray variables) {
    const Environment environment(variables);
    return call_with_environment(variables, prepare(path, environment), environment,
                                 [=](StringArray new_variables) {
                                     return get_function(real.posix_spawn, "posix_spawn")(
                                         pid, path, actions, attributes, argv, new_variables);
                                 });
}
ASSAY_HOOK int posix_spawnp(pid_t* pid, const char* name, const posix_spawn_file_actions_t* actions,
                            const posix_spawnattr_t* attributes, StringArray argv,
                            StringArray variables) {
    const Environment environment(variables);
    return call_with_environment(variables, prepare_program(name, environment), environment,
                                 [=](StringArray new_variables) {
                                     return get_function(real.posix_spawnp, "posix_spawnp")(
                                         pid, name, actions, attributes, argv, new_variables);
                                 });
}
