// events.build: reads the settings, runs the rank, and ends the job on failure.

#include <new>

#include "core/error.hpp"
#include "core/identity.hpp"
#include "core/interrupt.hpp"
#include "events/measurements.hpp"
#include "events/participant.hpp"
#include "events/settings.hpp"

namespace assay::events {
namespace {

constexpr Nanoseconds report_limit = 1'000'000'000;  // for the message to rank 0 to be sent

// Sends the error of a rank whose files or settings are wrong to rank 0, which ends the run.
void report_to_manager(Transport& transport, const Error& error) {
    OperationTracker operations(transport);
    const Json hello = {{"error", error.what()}, {"fix", error.fix}};
    operations.send_control(0, tag::to_manager,
                            std::make_shared<const Bytes>(encode_hello(hello.dump())));
    const Nanoseconds begin = transport.clock();
    while (operations.control_in_flight() > 0 && transport.clock() - begin < report_limit)
        operations.poll([](const Operation&, bool) {});
}

[[noreturn]] void fail(Bench& bench, const std::string& label, const Error& error) {
    const int rank = bench.transport.rank();
    bench.sink.failure(label + ": " + error.what(), error.fix, {.host = label, .rank = rank});
    bench.transport.abort(detail::exit_unusable);
    __builtin_unreachable();
}

}  // namespace

void detail::check_build(const Options& options, int ranks) { read_settings(options, ranks); }

void detail::run_build(const Options& options, Bench& bench) {
    Transport& transport = bench.transport;
    std::optional<Settings> settings;
    try {
        settings = read_settings(options, transport.size());
    } catch (const Error& error) {
        if (transport.rank() == 0) throw;
        report_to_manager(transport, error);
        return;
    }
    if (!transport.simulated()) catch_interrupts();
    Participant participant(transport, *settings, bench.sink);
    try {
        participant.run();
    } catch (const Error& error) {
        fail(bench, participant.label(), error);
    } catch (const std::bad_alloc&) {
        fail(bench, participant.label(),
             Error("not enough memory for the buffers", "lower --fragment or --credits"));
    }
}

}  // namespace assay::events
