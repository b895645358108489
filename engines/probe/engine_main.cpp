// The command line of an executable with a table of measurements (see engine_main.hpp).
#include "probe/engine_main.hpp"

#include <fmt/format.h>

#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "core/facts.hpp"
#include "core/host_counters.hpp"
#include "core/identity.hpp"
#include "core/main.hpp"
#include "core/options.hpp"
#include "core/rank_variables.hpp"
#include "core/record.hpp"
#include "core/topology.hpp"
#include "probe/describe.hpp"
#include "probe/guardian.hpp"
#include "transport/check.hpp"
#include "transport/transport.hpp"

namespace assay {
namespace {

void print_usage(std::FILE* stream, std::string_view program, std::span<const Measurement> table) {
    fmt::print(stream,
               "usage: {0} --describe\n"
               "       {0} --identity\n"
               "       {0} --check-transport NAME\n"
               "       {0} check MEASUREMENT RANKS [--param value ...]\n"
               "       {0} run MEASUREMENT [--param value ...]\n\n"
               "measurements:\n",
               program);
    for (const Measurement& m : table) fmt::print(stream, "  {:<24} {}\n", m.name, m.help);
}

// The rank that a launcher gave this process, known before MPI_Init; none if started by hand.
std::optional<int> launched_rank() {
    for (const char* name : rank_variables)
        if (const char* value = std::getenv(name))
            return static_cast<int>(std::strtol(value, nullptr, 10));
    return std::nullopt;
}

int run(const Measurement& measurement, int argc, char** argv) {
    const Options options = Options::parse(measurement, {argv + 3, argv + argc});
    Sink sink;
    if (const auto reason = measurement.waived()) {
        for (const Metric& metric : measurement.metrics)
            sink.waived(measurement, metric.name, {.host = host_name()}, Json::object(), *reason);
        return 0;
    }
    // Written before the transport starts, so that a host that never connects can be named. Node
    // measurements need no other rank.
    if (measurement.scope != Scope::node) {
        const auto rank = launched_rank();
        // Without MPI the launcher starts each rank itself, and sees how it ends.
        const char* direct = std::getenv("ASSAY_TRANSPORT") ? std::getenv("ASSAY_RANK") : nullptr;
        const int direct_rank = direct ? static_cast<int>(std::strtol(direct, nullptr, 10)) : 0;
        sink.hello(direct ? direct_rank : rank.value_or(0), host_name());
        if (rank && !direct) split_off_guardian(*rank);
    }
    if (measurement.scope == Scope::node)
        for (const Context& context : contexts()) sink.context(context.subject, context.facts);
    for_each_rank(argc, argv, [&](Transport& transport) {
        Bench bench{sink, transport};
        const Counters before = read_host_counters();
        measurement.run(options, bench);
        // Every rank reports its host: what held it back is no fault of the network.
        if (transport.simulated()) return;
        const Json facts = limit_facts(growth(before, read_host_counters()));
        if (!facts.empty()) sink.context({.host = host_name()}, facts);
    });
    return 0;
}

}  // namespace

int engine_main(std::string_view program, std::span<const Measurement> table, int argc,
                char** argv) {
    // A closed output is then an Error from Sink, not a silent death.
    std::signal(SIGPIPE, SIG_IGN);
    return report_errors(program, [&] {
        const std::string command = argc > 1 ? argv[1] : "";
        if (command == "--describe") {
            fmt::print("{}\n", describe(table).dump());
            return 0;
        }
        if (command == "--identity") {
            fmt::print("{}\n", to_json(identify(host_name(), false)).dump());
            return 0;
        }
        if (command == "--check-transport" && argc > 2) {
            check_transport(argv[2]);
            return 0;
        }
        if (command == "check" && argc > 3) {
            const Measurement& measurement = find_measurement(table, argv[2]);
            const Options options = Options::parse(measurement, {argv + 4, argv + argc});
            if (measurement.check)
                measurement.check(options, static_cast<int>(std::strtol(argv[3], nullptr, 10)));
            return 0;
        }
        if (command == "run" && argc > 2) return run(find_measurement(table, argv[2]), argc, argv);
        const bool help = command == "--help" || command == "-h";
        print_usage(help ? stdout : stderr, program, table);
        return help ? 0 : exit_unusable;
    });
}

}  // namespace assay
