// The executable around a table of measurements: assay-probe, the same sources once for each MPI,
// and assay-io.
//
//   assay-probe --describe                     what it can measure, as JSON
//   assay-probe run NAME [--param value ...]   measures; records on standard output
//
// The one place where errors become exit codes: 0 measured, 2 wrong input or not runnable here.
#include <fmt/format.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/facts.hpp"
#include "core/options.hpp"
#include "core/record.hpp"
#include "core/topology.hpp"
#include "probe/describe.hpp"
#include "probe/guardian.hpp"
#include "transport/transport.hpp"

namespace {

using namespace assay;

constexpr int exit_unusable = 2;

void usage(std::FILE* to) {
    fmt::print(to,
               "usage: {0} --describe\n"
               "       {0} run MEASUREMENT [--param value ...]\n\n"
               "measurements:\n",
               program);
    for (const Measurement& m : measurements()) fmt::print(to, "  {:<24} {}\n", m.name, m.help);
}

// The rank that a launcher gave this process, known before MPI_Init; none when started by hand.
std::optional<int> launched_rank() {
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"})
        if (const char* value = std::getenv(name)) return std::atoi(value);
    return std::nullopt;
}

// Node measurements run where they were started, once a process, and need no other rank.
int run(int argc, char** argv) {
    const Measurement& measurement = find_measurement(argv[2]);
    const Options options = Options::parse(measurement, {argv + 3, argv + argc});
    Sink sink;
    if (const auto reason = measurement.waived()) {
        for (const Metric& metric : measurement.metrics)
            sink.waived(measurement, metric.name, {.host = host_name()}, Json::object(), *reason);
        return 0;
    }
    // Said before the transport starts: a host that never answers can then be named.
    if (measurement.scope != Scope::node) {
        const auto rank = launched_rank();
        sink.hello(rank.value_or(0), host_name());
        if (rank) split_off_guardian(*rank);
    }
    if (measurement.scope == Scope::node)
        for (const Context& one : contexts()) sink.context(one.subject, one.facts);
    for_each_rank(argc, argv, [&](Transport& transport) {
        Bench bench{sink, transport};
        measurement.run(options, bench);
    });
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    std::signal(SIGPIPE,
                SIG_IGN);  // a reader that went away is an Error from Sink, not a silent death
    const std::string verb = argc > 1 ? argv[1] : "";
    try {
        if (verb == "--describe") {
            fmt::print("{}\n", describe().dump());
            return 0;
        }
        if (verb == "run" && argc > 2) return run(argc, argv);
        usage(verb == "--help" || verb == "-h" ? stdout : stderr);
        return verb == "--help" || verb == "-h" ? 0 : exit_unusable;
    } catch (const Error& error) {
        fmt::print(stderr, "{}: {}{}{}\n", program, error.what(), error.fix.empty() ? "" : "; ",
                   error.fix);
        return exit_unusable;
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}: defect: {}\n", program, error.what());
        return exit_unusable;
    }
}
