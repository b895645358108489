// assay-heap: records the memory of a program, and reads what was recorded.
//
//   assay-heap record FOLDER -- PROGRAM [ARGUMENT ...]   the program's own output and exit status
//   assay-heap analyse TRACE                             what became of it, as JSON on standard output
//   assay-heap pack TRACE                                the same in a tenth of the room
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "core/error.hpp"
#include "profile/analyse/analyse.hpp"
#include "profile/pack/pack.hpp"
#include "profile/record/record.hpp"

namespace {

using namespace assay;

constexpr int exit_unusable = 2;

// Beside this executable.
std::string library() {
    const auto path = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "libassay-heap.so";
    if (!std::filesystem::exists(path)) throw Error(path.string() + " is missing", "build it: make setup");
    return path;
}

// Ends as the program ended, also by a signal.
[[noreturn]] void end_as(int status) {
    if (WIFSIGNALED(status)) {
        const rlimit none{0, 0};
        setrlimit(RLIMIT_CORE, &none);
        std::signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status));
    }
    _exit(WEXITSTATUS(status));
}

int run(int argc, char** argv) {
    const std::string verb = argc > 1 ? argv[1] : "";
    if (verb == "record" && argc > 4 && std::string(argv[3]) == "--") end_as(heap::record(argv[2], library(), {argv + 4, argv + argc}));
    if (verb == "analyse" && argc == 3) {
        heap::analyse(argv[2], stdout);
        return 0;
    }
    if (verb == "pack" && argc == 3) {
        heap::pack(argv[2]);
        return 0;
    }
    fmt::print(stderr, "usage: assay-heap record FOLDER -- PROGRAM [ARGUMENT ...]\n       assay-heap analyse|pack TRACE\n");
    return exit_unusable;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const Error& error) {
        fmt::print(stderr, "assay-heap: {}{}{}\n", error.what(), error.hint.empty() ? "" : "; ", error.hint);
        return exit_unusable;
    } catch (const std::exception& error) {
        fmt::print(stderr, "assay-heap: defect: {}\n", error.what());
        return exit_unusable;
    }
}
