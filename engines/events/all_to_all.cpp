// events.alltoall: MPI_Alltoall and MPI_Alltoallv with messages of the same size, for comparison
// with the event builder.
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/identity.hpp"
#include "core/options.hpp"
#include "core/statistics.hpp"
#include "events/measurements.hpp"
#include "events/operations.hpp"
#include "events/payload.hpp"
#include "transport/watchdog.hpp"

namespace assay::events {
namespace {

// The buffers of one rank: a message to each rank, as readout units write them.
class Exchange {
public:
    Exchange(Transport& transport, std::size_t message_bytes)
        : transport_(transport),
          size_(static_cast<std::size_t>(transport.size())),
          message_bytes_(message_bytes),
          format_{Sizes::fixed(static_cast<std::uint32_t>(message_bytes - sizeof(MessageHeader) -
                                                          sizeof(FragmentHeader)),
                               transport.size()),
                  0, true},
          send_buffer_(transport,
                       transport.keeps_contents() ? size_ * message_bytes : message_bytes),
          receive_buffer_(transport,
                          transport.keeps_contents() ? size_ * message_bytes : message_bytes),
          counts_(size_, static_cast<int>(message_bytes)) {}

    // Writes the messages of an exchange.
    void produce(std::uint64_t number) {
        if (!transport_.keeps_contents()) return;
        for (std::size_t to = 0; to < size_; ++to)
            write_message(send_buffer_.data() + to * message_bytes_, format_, transport_.rank(),
                          group(number, to));
    }
    void run(bool use_alltoallv) {
        if (use_alltoallv)
            transport_.all_to_all(send_buffer_.data(), counts_, receive_buffer_.data(), counts_);
        else transport_.all_to_all(send_buffer_.data(), receive_buffer_.data(), message_bytes_);
    }
    // Whether every received message is as written.
    bool intact(std::uint64_t number) const {
        if (!transport_.keeps_contents()) return true;
        const EventGroup expected = group(number, static_cast<std::size_t>(transport_.rank()));
        for (std::size_t from = 0; from < size_; ++from)
            if (verify_message(receive_buffer_.data() + from * message_bytes_, format_,
                               static_cast<int>(from), expected)
                    .state != MessageCheck::State::intact)
                return false;
        return true;
    }

private:
    // Each rank builds one event of an exchange.
    EventGroup group(std::uint64_t number, std::size_t to) const {
        return {number * size_ + to, number * size_ + to, 1};
    }
    Transport& transport_;
    std::size_t size_, message_bytes_;
    Format format_;
    Memory send_buffer_, receive_buffer_;
    std::vector<int> counts_;
};

void max_over_ranks(Transport& transport, std::span<double> values) {
    transport.begin_max(values);
    while (!transport.test_collective()) {
    }
}

}  // namespace

void detail::run_all_to_all(const Options& options, Bench& bench) {
    Transport& transport = bench.transport;
    const bool is_first_rank = transport.rank() == 0;
    const auto refuse = [&](const char* what, const char* fix) {
        if (is_first_rank) throw Error(what, fix);
    };
    if (!transport.has_all_to_all())
        return refuse("events.alltoall: only MPI has an all-to-all of its own",
                      "run it with assay-probe-openmpi or assay-probe-mpich");
    if (transport.size() < 2)
        return refuse("events.alltoall needs at least 2 ranks", "mpirun -np 4 ...");
    const double limit = options.real("timeout"), budget = options.real("budget");
    const std::size_t message_bytes =
        static_cast<std::size_t>(options.integer("fragment")) & ~std::size_t{7};
    std::optional<Watchdog> watchdog;
    if (!transport.simulated())
        watchdog.emplace(static_cast<Nanoseconds>(limit * 1e9), [&] {
            bench.sink.failure(
                fmt::format("{}: MPI_Alltoall has not returned for {} s", transport.host(), limit),
                "check that every host is up and reachable, or raise --timeout",
                {.host = transport.host(), .rank = transport.rank()});
            _exit(detail::exit_unusable);
        });
    std::vector<Identity> identities;
    for (const std::string& packed :
         transport.gather(to_json(identify(transport.host(), transport.simulated())).dump()))
        identities.push_back(read_identity(packed));
    make_unique(identities);
    std::vector<std::string> hosts;
    hosts.reserve(identities.size());
    for (const Identity& identity : identities) hosts.push_back(identity.host);
    if (is_first_rank) report_ranks(bench.sink, identities, rank_labels(hosts));

    Exchange exchange(transport, message_bytes);
    const double ranks = transport.size();
    const double bytes = ranks * (ranks - 1) * static_cast<double>(message_bytes);
    const Nanoseconds begin = transport.clock();
    std::uint64_t number = 0;
    for (const bool use_alltoallv : {false, true}) {
        std::vector<double> rates, verified;
        for (std::int64_t i = 0; i <= options.integer("repeats"); ++i) {
            const Nanoseconds production_start = transport.clock();
            exchange.produce(++number);
            const Nanoseconds production_end = transport.clock();
            double elapsed[] = {seconds(production_end - begin)};
            if (watchdog) watchdog->enter(now());
            max_over_ranks(transport, elapsed);
            if (budget > 0 && elapsed[0] > (use_alltoallv ? budget : budget / 2) && i > 1) {
                if (watchdog) watchdog->leave();
                break;
            }
            const Nanoseconds start = transport.clock();
            exchange.run(use_alltoallv);
            const Nanoseconds exchange_end = transport.clock();
            const bool intact = exchange.intact(number);
            const Nanoseconds end = transport.clock();
            double maxima[] = {seconds(exchange_end - start),
                               seconds(end - start + production_end - production_start),
                               intact ? 0.0 : 1.0};
            max_over_ranks(transport, maxima);
            if (watchdog) watchdog->leave();
            if (maxima[2] > 0)
                return refuse("an exchange of the MPI library arrived damaged",
                              "see assay net, which names the pair");
            if (i == 0) continue;  // the first one warms up
            rates.push_back(bytes / maxima[0]);
            verified.push_back(bytes / maxima[1]);
        }
        if (!is_first_rank || rates.empty()) continue;
        const Json params = {{"operation", use_alltoallv ? "MPI_Alltoallv" : "MPI_Alltoall"},
                             {"fragment", message_bytes},
                             {"ranks", transport.size()},
                             {"library", transport.library()}};
        bench.sink.measurement(all_to_all, "bandwidth", {}, params, summarize(rates), rates);
        bench.sink.measurement(all_to_all, "verified_bandwidth", {}, params, summarize(verified),
                               verified);
    }
}

}  // namespace assay::events
