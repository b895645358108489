// assay-heap: records the allocations of a program, and analyses the traces.
//
//   assay-heap --describe      prints the descriptor of its measurement as JSON
//   assay-heap record [OPTION ...] DIRECTORY -- PROGRAM [ARGUMENT ...]
//                              runs the program; output and exit status are the program's
//   assay-heap record [OPTION ...] --attach PID DIRECTORY
//                              records a running process, until SIGINT
//   assay-heap analyse TRACE   prints an analysis as JSON
//   assay-heap import FILE     prints an analysis of a heaptrack file as JSON
//   assay-heap pack TRACE      compresses a trace to a tenth of its size
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <array>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "core/main.hpp"
#include "core/registry.hpp"
#include "probe/describe.hpp"
#include "profile/analyse/analyse.hpp"
#include "profile/analyse/heaptrack.hpp"
#include "profile/pack/pack.hpp"
#include "profile/record/record.hpp"
#include "profile/recorded_program.hpp"

namespace {

using namespace assay;

constexpr std::array parameters = {
    Parameter{"program", Kind::text, "", "", "its path"},
    Parameter{"pid", Kind::integer, "", "0", "the process id", 0, 1u << 31},
};
constexpr std::array metrics = {
    Metric{"peak", "B", Better::lower, "largest number of live bytes"},
    Metric{"allocated", "B", Better::lower, "bytes of all blocks"},
    Metric{"allocations", "1", Better::lower, "number of blocks"},
    Metric{"leaked", "B", Better::lower, "bytes never freed"},
};
// `assay heap` records it and reads the figures from the analysis. It is never run by name.
constexpr std::array table = {
    Measurement{"profile.heap", Scope::node,
                "totals of a program's allocations: assay heap -- PROGRAM", parameters, metrics,
                runs_anywhere, nullptr},
};

int run(int argc, char** argv) {
    if (argc == 2 && std::string_view(argv[1]) == "--describe") {
        fmt::print("{}\n", describe(table).dump());
        return 0;
    }
    CLI::App app("Records the allocations of a program, and analyses the traces.", "assay-heap");
    app.require_subcommand(1);
    heap::Settings settings;
    CLI::App* record =
        app.add_subcommand("record", "run a program, or attach to one, and record it");
    record->add_option("directory", settings.directory, "directory for the traces")
        ->required()
        ->check(CLI::ExistingDirectory);
    std::string libraries;
    record->add_option("--libraries", libraries,
                       "the folder of the preloaded library, as LD_PRELOAD can hold it");
    record->add_option("--at-least", settings.min_block_bytes, "leave out blocks of fewer bytes");
    record->add_option("--sample", settings.sample_bytes,
                       "record about one block per this many requested bytes");
    record->add_option("--ranks", settings.ranks, "record only these MPI ranks, e.g. 0,3");
    record->add_flag("!--no-python", settings.records_python, "do not record Python functions");
    record->add_flag("!--no-faults", settings.watches_faults, "do not record page faults");
    record->add_option("--dump-at", settings.dump_at,
                       "write a profile when this many bytes are resident");
    CLI::Option* process =
        record->add_option("--attach", settings.process, "pid of a running process");
    record
        ->add_option("--budget", settings.seconds,
                     "seconds to stay attached; default: until it ends, or SIGINT")
        ->needs(process)
        ->check(CLI::PositiveNumber);
    record->add_option("program", settings.program, "the program and its arguments, after --")
        ->excludes(process);
    std::string trace;
    std::uint64_t bytes = ~std::uint64_t{0};
    CLI::App* analyse = app.add_subcommand("analyse", "print an analysis of a trace as JSON");
    analyse->add_option("trace", trace)->required();
    analyse->add_option("--bytes", bytes, "analyse only this many bytes from the beginning");
    CLI::App* pack = app.add_subcommand("pack", "compress a trace to a tenth of its size");
    pack->add_option("trace", trace)->required();
    CLI::App* import =
        app.add_subcommand("import", "print an analysis of a heaptrack file as JSON");
    import->add_option("file", trace)->required();
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : exit_unusable;
    }
    if (record->parsed()) {
        settings.library = profile::library_path(libraries, "libassay-heap.so");
        if (process->count() == 0 && settings.program.empty())
            throw Error("no program given", "write it after --");
        if (process->count() != 0) {
            heap::record_running(std::move(settings));
            return 0;
        }
        profile::exit_like(heap::record(std::move(settings)));
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
