// assay-heap: records the memory of a program, and reads what was recorded.
//
//   assay-heap record [OPTION ...] FOLDER -- PROGRAM [ARGUMENT ...]   the program's own output and
//                                                                     exit status
//   assay-heap record [OPTION ...] --attach PID FOLDER   of a process that runs, until SIGINT
//   assay-heap analyse TRACE   what became of it, as JSON on standard output
//   assay-heap import FILE     the same of a file of heaptrack's
//   assay-heap pack TRACE      the same in a tenth of the room
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <csignal>
#include <filesystem>
#include <string>

#include "core/error.hpp"
#include "core/main.hpp"
#include "profile/analyse/analyse.hpp"
#include "profile/analyse/heaptrack.hpp"
#include "profile/pack/pack.hpp"
#include "profile/record/record.hpp"

namespace {

using namespace assay;

// Beside this executable.
std::string library() {
    const auto path =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "libassay-heap.so";
    if (!std::filesystem::exists(path))
        throw Error(path.string() + " is missing", "build it: make setup");
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
    CLI::App app("Records the memory of a program, and reads what was recorded.", "assay-heap");
    app.require_subcommand(1);
    heap::Settings settings;
    CLI::App* record =
        app.add_subcommand("record", "runs a program; its output and exit status are its own");
    record->add_option("folder", settings.folder, "where traces go")
        ->required()
        ->check(CLI::ExistingDirectory);
    record->add_option("--at-least", settings.at_least, "bytes: leave smaller blocks out");
    record->add_option("--sample", settings.sample,
                       "bytes: about one block for each so many that are asked for");
    record->add_option("--ranks", settings.ranks, "of an MPI program only these: 0,3");
    record->add_flag("!--no-python", settings.reads_python,
                     "do not look for Python's functions: C stacks alone");
    record->add_flag("!--no-faults", settings.watches_faults,
                     "do not watch who touches memory first");
    record->add_option("--dump-at", settings.dump_at,
                       "bytes in memory at which a profile is written on the way");
    CLI::Option* process =
        record->add_option("--attach", settings.process, "a process that runs already");
    record
        ->add_option("--for", settings.seconds,
                     "seconds that it is recorded; else until it ends, or SIGINT")
        ->needs(process)
        ->check(CLI::PositiveNumber);
    record->add_option("program", settings.program, "after --")->excludes(process);
    std::string trace;
    std::uint64_t bytes = ~std::uint64_t{0};
    CLI::App* analyse =
        app.add_subcommand("analyse", "what became of it, as JSON on standard output");
    analyse->add_option("trace", trace)->required();
    analyse->add_option("--bytes", bytes, "only so much of it, while it is being written");
    CLI::App* pack = app.add_subcommand("pack", "the same in a tenth of the room");
    pack->add_option("trace", trace)->required();
    CLI::App* import =
        app.add_subcommand("import", "a file of heaptrack's, as JSON on standard output");
    import->add_option("file", trace)->required();
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : exit_unusable;
    }
    if (record->parsed()) {
        settings.library = library();
        if (process->count() == 0 && settings.program.empty())
            throw Error("no program given", "write it after --");
        if (process->count() != 0) {
            heap::record_running(std::move(settings));
            return 0;
        }
        end_as(heap::record(std::move(settings)));
    }
    if (analyse->parsed()) heap::analyse(trace, bytes, stdout);
    else if (import->parsed()) heap::import_heaptrack(trace, stdout);
    else heap::pack(trace);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    return report_errors("assay-heap", [&] { return run(argc, argv); });
}
