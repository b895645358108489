// events.alltoall: the library's own exchange at the same message size, to hold the event builder
// against.
#include <fmt/format.h>
#include <unistd.h>

#include <numeric>

#include "core/error.hpp"
#include "core/identity.hpp"
#include "core/options.hpp"
#include "core/statistics.hpp"
#include "events/measurements.hpp"
#include "events/payload.hpp"
#include "events/post.hpp"
#include "transport/watchdog.hpp"

namespace assay::events {
namespace {

constexpr int exit_unusable = 2;

// The buffers of one rank: a message to each rank, as readout units write them.
class Exchange {
public:
    Exchange(Transport& transport, std::size_t each)
        : transport_(transport),
          size_(static_cast<std::size_t>(transport.size())),
          each_(each),
          format_{Sizes::fixed(static_cast<std::uint32_t>(each - sizeof(MessageHeader) -
                                                          sizeof(FragmentHeader)),
                               transport.size()),
                  0, true},
          from_(transport, transport.keeps_contents() ? size_ * each : each),
          to_(transport, transport.keeps_contents() ? size_ * each : each),
          counts_(size_, static_cast<int>(each)) {}

    void produce(std::uint64_t number) {
        if (!transport_.keeps_contents()) return;
        for (std::size_t to = 0; to < size_; ++to)
            write_message(from_.data() + to * each_, format_, transport_.rank(), bulk(number, to));
    }
    void run(bool varying) {
        if (varying) transport_.all_to_all(from_.data(), counts_, to_.data(), counts_);
        else transport_.all_to_all(from_.data(), to_.data(), each_);
    }
    bool intact(std::uint64_t number) const {
        if (!transport_.keeps_contents()) return true;
        const Bulk expected = bulk(number, static_cast<std::size_t>(transport_.rank()));
        for (std::size_t from = 0; from < size_; ++from)
            if (verify_message(to_.data() + from * each_, format_, static_cast<int>(from), expected)
                    .state != Verdict::State::intact)
                return false;
        return true;
    }

private:
    // Each rank builds one event of an exchange.
    Bulk bulk(std::uint64_t number, std::size_t to) const {
        return {number * size_ + to, number * size_ + to, 1};
    }
    Transport& transport_;
    std::size_t size_, each_;
    Format format_;
    Memory from_, to_;
    std::vector<int> counts_;
};

void reduce(Transport& transport, std::span<double> values) {
    transport.begin_max(values);
    while (!transport.test_collective()) {
    }
}

}  // namespace

void detail::run_all_to_all(const Options& options, Bench& bench) {
    Transport& transport = bench.transport;
    const bool first = transport.rank() == 0;
    const auto refuse = [&](const char* what, const char* fix) {
        if (first) throw Error(what, fix);
    };
    if (!transport.has_all_to_all())
        return refuse("events.alltoall: only MPI has an all-to-all of its own",
                      "run it with assay-probe-openmpi or assay-probe-mpich");
    if (transport.size() < 2)
        return refuse("events.alltoall needs at least 2 ranks", "mpirun -np 4 ...");
    const double limit = options.real("timeout"), budget = options.real("budget");
    const std::size_t each =
        static_cast<std::size_t>(options.integer("fragment")) & ~std::size_t{7};
    std::optional<Watchdog> watchdog;
    if (!transport.simulated())
        watchdog.emplace(static_cast<Nanoseconds>(limit * 1e9), [&] {
            bench.sink.failure(
                fmt::format("{}: MPI_Alltoall has not returned for {} s", transport.host(), limit),
                "check that every host is up and reachable, or raise --timeout",
                {.host = transport.host(), .rank = transport.rank()});
            _exit(exit_unusable);
        });
    std::vector<Identity> identities;
    for (const std::string& packed :
         transport.gather(to_json(identify(transport.host(), transport.simulated())).dump()))
        identities.push_back(read_identity(packed));
    make_unique(identities);
    std::vector<std::string> hosts;
    hosts.reserve(identities.size());
    for (const Identity& identity : identities) hosts.push_back(identity.host);
    if (first) report_ranks(bench.sink, identities, rank_labels(hosts));

    Exchange exchange(transport, each);
    const double ranks = transport.size();
    const double bytes = ranks * (ranks - 1) * static_cast<double>(each);
    const Nanoseconds begin = transport.clock();
    std::uint64_t number = 0;
    for (const bool varying : {false, true}) {
        std::vector<double> rates, verified;
        for (std::int64_t i = 0; i <= options.integer("repeats"); ++i) {
            const Nanoseconds filling = transport.clock();
            exchange.produce(++number);
            const Nanoseconds filled = transport.clock();
            double elapsed[] = {seconds(filled - begin)};
            if (watchdog) watchdog->enter(now());
            reduce(transport, elapsed);
            if (budget > 0 && elapsed[0] > (varying ? budget : budget / 2) && i > 1) {
                if (watchdog) watchdog->leave();
                break;
            }
            const Nanoseconds start = transport.clock();
            exchange.run(varying);
            const Nanoseconds carried = transport.clock();
            const bool intact = exchange.intact(number);
            const Nanoseconds end = transport.clock();
            double together[] = {seconds(carried - start), seconds(end - start + filled - filling),
                                 intact ? 0.0 : 1.0};
            reduce(transport, together);
            if (watchdog) watchdog->leave();
            if (together[2] > 0)
                return refuse("an exchange of the MPI library arrived damaged",
                              "see assay net, which names the pair");
            if (i == 0) continue;  // the first one warms up
            rates.push_back(bytes / together[0]);
            verified.push_back(bytes / together[1]);
        }
        if (!first || rates.empty()) continue;
        const Json params = {{"operation", varying ? "MPI_Alltoallv" : "MPI_Alltoall"},
                             {"fragment", each},
                             {"ranks", transport.size()},
                             {"library", transport.library()}};
        bench.sink.measurement(all_to_all, "bandwidth", {}, params, summarize(rates), rates);
        bench.sink.measurement(all_to_all, "verified_bandwidth", {}, params, summarize(verified),
                               verified);
    }
}

}  // namespace assay::events
