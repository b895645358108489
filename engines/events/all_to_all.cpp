// events.alltoall: the library's own exchange at the same message size, to hold the event builder
// against.
#include <fmt/format.h>
#include <unistd.h>

#include <numeric>

#include "core/error.hpp"
#include "core/identity.hpp"
#include "core/options.hpp"
#include "core/pattern.hpp"
#include "core/statistics.hpp"
#include "events/measurements.hpp"
#include "events/post.hpp"
#include "transport/watchdog.hpp"

namespace assay::events {
namespace {

constexpr int exit_unusable = 2;

class Exchange {
public:
    Exchange(Transport& transport, std::size_t each)
        : transport_(transport),
          size_(static_cast<std::size_t>(transport.size())),
          each_(each),
          from_(transport, transport.keeps_contents() ? size_ * each : each),
          to_(transport, transport.keeps_contents() ? size_ * each : each),
          counts_(size_, static_cast<int>(each)) {}

    // Every rank gets its own bytes from every other.
    void fill(std::uint64_t number) {
        if (!transport_.keeps_contents()) return;
        for (std::size_t to = 0; to < size_; ++to)
            stamp(from_.data() + to * each_, each_, key(transport_.rank(), to, number));
    }
    void run(bool varying) {
        if (varying) transport_.all_to_all(from_.data(), counts_, to_.data(), counts_);
        else transport_.all_to_all(from_.data(), to_.data(), each_);
    }
    bool intact(std::uint64_t number) const {
        if (!transport_.keeps_contents()) return true;
        const auto own = static_cast<std::size_t>(transport_.rank());
        for (std::size_t from = 0; from < size_; ++from)
            if (first_wrong_byte(to_.data() + from * each_, each_,
                                 key(static_cast<int>(from), own, number)))
                return false;
        return true;
    }

private:
    static std::uint64_t key(int from, std::size_t to, std::uint64_t number) {
        return stamp_key(from, static_cast<int>(to), number);
    }
    Transport& transport_;
    std::size_t size_, each_;
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
        std::vector<double> rates;
        for (std::int64_t i = 0; i <= options.integer("repeats"); ++i) {
            exchange.fill(++number);
            double together[] = {0, seconds(transport.clock() - begin), 0};
            if (watchdog) watchdog->enter(now());
            reduce(transport, together);
            if (budget > 0 && together[1] > (varying ? budget : budget / 2) && i > 1) {
                if (watchdog) watchdog->leave();
                break;
            }
            const Nanoseconds start = transport.clock();
            exchange.run(varying);
            together[0] = seconds(transport.clock() - start);
            together[2] = exchange.intact(number) ? 0 : 1;
            reduce(transport, together);
            if (watchdog) watchdog->leave();
            if (together[2] > 0)
                return refuse("an exchange of the MPI library arrived damaged",
                              "see assay net, which names the pair");
            if (i > 0) rates.push_back(bytes / together[0]);  // the first one warms up
        }
        if (!first || rates.empty()) continue;
        bench.sink.measurement(all_to_all, "bandwidth", {},
                               {{"operation", varying ? "MPI_Alltoallv" : "MPI_Alltoall"},
                                {"fragment", each},
                                {"ranks", transport.size()},
                                {"library", transport.library()}},
                               summarize(rates), rates);
    }
}

}  // namespace assay::events
