// The hooks of the functions that start programs (exec and posix_spawn). A program into which the
// library cannot be loaded is started without it: musl and AddressSanitizer would end the program.
//
// The hooks also run in the child of a fork or a vfork, so they neither allocate nor lock, and they
// change no memory but what the library's notes (preload/start.hpp) are in.
//
// Each library that is loaded into programs compiles this file, because the hooks are exported.
#include "preload/start.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdarg>
#include <cstddef>
#include <cstdint>

#include "preload/errno_guard.hpp"
#include "preload/obstacle.hpp"

namespace assay::preload {
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

constexpr char preload_name[] = "LD_PRELOAD=", path_name[] = "PATH=";

// Returns the length of the next library in the value of LD_PRELOAD, and whether it is this one.
std::size_t parse_library(const char* list, bool& is_own) {
    const std::size_t n = strcspn(list, ": "), own_length = strlen(library_name);
    std::size_t begin = n;
    while (begin > 0 && list[begin - 1] != '/') --begin;
    is_own = n - begin >= own_length && memcmp(list + begin, library_name, own_length) == 0;
    return n;
}

// An environment, and a copy of it without this library in LD_PRELOAD, in memory of the caller.
class Environment {
public:
    explicit Environment(StringArray variables) : variables_(variables) {
        for (; variables_ != nullptr && variables_[count_] != nullptr; ++count_) {
            const char* const variable = variables_[count_];
            if (preload_ != nullptr ||
                strncmp(variable, preload_name, sizeof preload_name - 1) != 0)
                continue;
            for (const char* cursor = variable + sizeof preload_name - 1; *cursor != 0;) {
                bool is_own = false;
                cursor += parse_library(cursor, is_own);
                has_library_ |= is_own;
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
            bool is_own = false;
            const std::size_t n = parse_library(cursor, is_own);
            if (!is_own && n != 0) {
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
    unchanged,  // the library is loaded into it, or it is unknown
    noted,      // the library does nothing in it; the environment is unchanged
    without_library
};

// Decides how a program is started, and notes it if the library does nothing in it.
StartMode prepare(const char* path, const Environment& environment) {
    const ErrnoGuard errno_guard;
    struct stat status{};
    if (stat(path, &status) != 0 || !S_ISREG(status.st_mode) || (status.st_mode & 0111) == 0)
        return StartMode::unchanged;
    const PreloadObstacle obstacle = obstacle_of(path);
    const char* why = reason(obstacle);
    if (obstacle == PreloadObstacle::none) why = why_idle(environment.has_library());
    if (why == nullptr) return StartMode::unchanged;
    note_start_without_library(path, why);
    return environment.has_library() && obstacle != PreloadObstacle::none
               ? StartMode::without_library
               : StartMode::noted;
}

StartMode prepare_program(const char* name, const Environment& environment) {
    char path[PATH_MAX];
    const ErrnoGuard errno_guard;
    return find_program(name, search_path(), path, sizeof path) ? prepare(path, environment)
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

// Like call_with_environment(), for an exec in this process.
template <class Call>
int replace_process(StringArray variables, StartMode mode, const Environment& environment,
                    Call call) {
    if (mode == StartMode::unchanged) return call(variables);
    note_end();
    const int status = call_with_environment(variables, mode, environment, call);
    cancel_end();
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
}  // namespace assay::preload

using namespace assay::preload;

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
