// assay-alloc: measures allocators, and replays heap traces on them.
//
//   assay-alloc --describe                       prints the measurements' descriptors as JSON
//   assay-alloc check [--library PATH] [...]     starts a process with the allocator preloaded and
//                                                prints the path of the library whose malloc it
//                                                calls; an error if that is another library
//   assay-alloc run NAME [--library PATH] [...]  runs a measurement; writes records to standard
//                                                output
//   assay-alloc prepare TRACE SCRIPT             converts a heap trace into a script for
//                                                profile.alloc.replay; prints its counts as JSON
//   assay-alloc serve                            is the measured process, which check and run start
//
// Errors exit with 2 and the reason on standard error.
#include <fmt/format.h>

#include <array>
#include <csignal>
#include <nlohmann/json.hpp>
#include <string>

#include "core/interrupt.hpp"
#include "core/main.hpp"
#include "core/options.hpp"
#include "core/record.hpp"
#include "probe/describe.hpp"
#include "profile/alloc/measured_process.hpp"
#include "profile/alloc/measurements.hpp"
#include "profile/alloc/prepare.hpp"
#include "profile/alloc/study.hpp"
#include "transport/transport.hpp"

namespace assay {
namespace {

constexpr std::array table = {alloc::cycle,    alloc::retention, alloc::threads,
                              alloc::handover, alloc::mixed,     alloc::replay};

void measure(int argc, char** argv) {
    const Measurement& measurement = find_measurement(table, argv[2]);
    const Options options = Options::parse(measurement, {argv + 3, argv + argc});
    Sink sink;
    catch_interrupts();
    for_each_rank(argc, argv, [&](Transport& transport) {
        Bench bench{sink, transport};
        measurement.run(options, bench);
    });
}

void prepare(const std::string& trace, const std::string& script) {
    const alloc::ScriptHeader header = alloc::prepare(trace, script);
    const Json json = {{"threads", header.threads},
                       {"mallocs", header.mallocs},
                       {"reallocs", header.reallocs},
                       {"frees", header.frees},
                       {"peak_live", header.peak_live},
                       {"leaked", header.leaked},
                       {"unknown_frees", header.unknown_frees},
                       {"handed_over", header.handed_over}};
    fmt::print("{}\n", json.dump());
}

int run(int argc, char** argv) {
    const std::string verb = argc > 1 ? argv[1] : "";
    if (verb == "serve" && argc == 2) return alloc::serve_task();
    std::signal(SIGPIPE, SIG_IGN);  // a closed standard output is an error of the write
    if (verb == "--describe") {
        fmt::print("{}\n", describe(table).dump());
        return 0;
    }
    if (verb == "check") {
        constexpr double limit_s = 30;
        // The options that select the allocator are the same in all measurements.
        fmt::print("{}\n", alloc::find_malloc_library(alloc::parse_allocator(Options::parse(
                                                          alloc::mixed, {argv + 2, argv + argc})),
                                                      limit_s));
        return 0;
    }
    if (verb == "run" && argc > 2) {
        measure(argc, argv);
        return 0;
    }
    if (verb == "prepare" && argc == 4) {
        prepare(argv[2], argv[3]);
        return 0;
    }
    fmt::print(stderr,
               "usage: assay-alloc --describe\n"
               "       assay-alloc check [--library PATH] [--param value ...]\n"
               "       assay-alloc run NAME [--library PATH] [--param value ...]\n"
               "       assay-alloc prepare TRACE SCRIPT\n");
    return exit_unusable;
}

}  // namespace

}  // namespace assay

int main(int argc, char** argv) {
    return assay::report_errors("assay-alloc", [&] { return assay::run(argc, argv); });
}
