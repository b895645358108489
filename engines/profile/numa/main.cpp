// assay-numa: records on which NUMA nodes a program's memory lies and which threads touch it first.
//
//   assay-numa record [OPTION ...] DIRECTORY -- PROGRAM [ARGUMENT ...]
//                        runs the program; output and exit status are the program's
//   assay-numa events [--period N]
//                        prints, as JSON, the events that sample accesses on this machine
//   assay-numa symbols   names addresses: reads "module BIAS BEGIN END PATH" and "address A" lines
//                        (hexadecimal), prints for each address a JSON list of
//                        [function, file, line, module, inlined], innermost first
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <iostream>
#include <string>

#include "core/error.hpp"
#include "core/main.hpp"
#include "core/topology.hpp"
#include "profile/analyse/symbols.hpp"
#include "profile/numa/record/kernel_events.hpp"
#include "profile/numa/record/recorder.hpp"
#include "profile/recorded_program.hpp"

namespace {

using namespace assay;

// Implements `symbols`. Bytes that are not valid UTF-8 become U+FFFD in the output.
void name_addresses() {
    heap::Symbols symbols;
    for (std::string line; std::getline(std::cin, line);) {
        const auto space = line.find(' ');
        const std::string keyword = line.substr(0, space),
                          rest = space == std::string::npos ? "" : line.substr(space + 1);
        if (keyword == "module") {
            symbols.add_modules(rest + "\n");
            continue;
        }
        std::uint64_t address = 0;
        try {
            address = std::stoull(rest, nullptr, 16);
        } catch (const std::exception&) {
            throw Error("no address: '" + line + "'", "write: address 1234ab");
        }
        auto locations = nlohmann::json::array();
        for (const heap::Location& location : symbols.find(address))
            locations.push_back({location.function, location.file, location.line, location.module,
                                 location.inlined});
        std::cout << locations.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)
                  << '\n';
    }
}

// Throws Error if this machine cannot sample accesses.
std::vector<numa::MemoryEvent> memory_events(std::uint64_t period) {
    auto events = numa::find_memory_events(sysfs("bus/event_source/devices"), period);
    numa::check_memory_events(events);
    return events;
}

void print_events(std::uint64_t period) {
    auto list = nlohmann::json::array();
    for (const numa::MemoryEvent& event : memory_events(period))
        list.push_back({{"name", event.name}, {"period", event.period}});
    std::cout << list.dump() << '\n';
}

int run(int argc, char** argv) {
    CLI::App app("Records where a program's memory lies.", "assay-numa");
    app.require_subcommand(1);
    numa::Settings settings;
    CLI::App* record = app.add_subcommand("record", "run a program and record it");
    record->add_option("directory", settings.directory, "directory for the recordings")
        ->required()
        ->check(CLI::ExistingDirectory);
    std::string libraries;
    record->add_option("--libraries", libraries,
                       "the folder of the preloaded library, as LD_PRELOAD can hold it");
    record->add_option("--emulate", settings.emulated, "emulate this many nodes")
        ->check(CLI::Range(1, 64));
    record->add_option("--at-least", settings.min_object_bytes,
                       "smallest allocation that is recorded as an object, bytes");
    record->add_option("--plan", settings.plan, "placements to apply")->check(CLI::ExistingFile);
    record->add_flag("!--no-faults", settings.watches_faults, "do not watch page faults");
    bool samples = false;
    std::uint64_t period = 0;
    record->add_flag("--samples", samples, "sample accesses too");
    record->add_option("--period", period, "accesses per sample; 0: chosen by the recorder");
    record->add_option("program", settings.program, "the program and its arguments, after --");
    CLI::App* events = app.add_subcommand("events", "name the events that sample accesses");
    events->add_option("--period", period, "accesses per sample; 0: chosen by the recorder");
    CLI::App* symbols = app.add_subcommand("symbols", "name addresses");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : exit_unusable;
    }
    if (symbols->parsed()) {
        name_addresses();
        return 0;
    }
    if (events->parsed()) {
        print_events(period);
        return 0;
    }
    if (settings.program.empty()) throw Error("no program given", "write it after --");
    settings.library = profile::library_path(libraries, "libassay-numa.so");
    if (samples) settings.events = memory_events(period);
    profile::exit_like(numa::record(settings));
}

}  // namespace

int main(int argc, char** argv) {
    return report_errors("assay-numa", [&] { return run(argc, argv); });
}
