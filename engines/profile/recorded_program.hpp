// What the recorders of heap and NUMA profiles share: where the library is that they load into a
// program, and how they end as the program did.
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "core/error.hpp"
#include "core/origin.hpp"

namespace assay::profile {

// The path of the preloaded library: in this folder, else beside this executable.
inline std::string library_path(const std::filesystem::path& folder, const char* name) {
    const auto executable = std::filesystem::read_symlink("/proc/self/exe");
    const auto path = (folder.empty() ? executable.parent_path() : folder) / name;
    if (!std::filesystem::exists(path))
        throw Error(path.string() + " is missing", repair(executable));
    return path;
}

// Exits with the program's status, or by the same signal.
[[noreturn]] inline void exit_like(int status) {
    if (WIFSIGNALED(status)) {
        const rlimit none{0, 0};
        setrlimit(RLIMIT_CORE, &none);
        std::signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status));
    }
    _exit(WEXITSTATUS(status));
}

}  // namespace assay::profile
