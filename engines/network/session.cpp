// Host names, limited waits, and the end of the job on failure (see session.hpp).
#include "network/session.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/error.hpp"
#include "core/text.hpp"
#include "core/topology.hpp"
#include "machine/available_memory.hpp"

namespace assay::network {
namespace {

constexpr int exit_unusable = 2;
constexpr int exit_interrupted = 130;
// Time after a signal in which all ranks stop together.
constexpr Nanoseconds signal_grace = 3'000'000'000;
constexpr Nanoseconds progress_interval = 200'000'000;
constexpr Nanoseconds sleep_interval = 500'000;  // between two polls of a rank without work
constexpr std::size_t max_named_hosts = 8;
constexpr int collectors = 2;  // ranks to which a waiting rank reports: see find_missing_ranks
constexpr int tag_present = 3;

// Time of the first signal, 0 before. Global, because a signal handler sets it.
std::atomic<Nanoseconds> signal_time{0};

extern "C" void on_signal(int) {
    Nanoseconds no_signal = 0;
    signal_time.compare_exchange_strong(no_signal, now());
}

void exit_if_signal_is_ignored() {
    const Nanoseconds time = signal_time.load();
    if (time != 0 && now() - time > signal_grace) _exit(exit_interrupted);
}

std::string format_bytes(double bytes) {
    const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    std::size_t unit = 0;
    for (; bytes >= 1024 && unit < 5; ++unit) bytes /= 1024;
    return fmt::format("{:.{}f} {}", bytes, bytes < 10 && unit ? 1 : 0, units[unit]);
}

}  // namespace

Session::Session(Bench& bench, WaitLimits limits)
    : transport(bench.transport), sink(bench.sink), rank_(bench.transport.rank()), limits_(limits) {
    if (!transport.simulated())
        watchdog_.emplace(
            limits.timeout * 3 / 2, [this] { report_stall(); }, exit_if_signal_is_ignored);
    std::signal(SIGINT, on_signal);
    std::signal(SIGTERM, on_signal);
    exchange_identities();
}

void Session::exchange_identities() {
    std::vector<Identity> identities;
    for (const std::string& packed :
         gather(to_json(identify(transport.host(), transport.simulated())).dump()))
        identities.push_back(read_identity(packed));
    make_unique(identities);
    std::string all;
    for (const Identity& identity : identities) all += (all.empty() ? "" : "\n") + identity.host;
    guarded("waits for the list of hosts", 0, [&] { transport.broadcast(all); });
    hosts_ = split(all, '\n');
    labels_ = rank_labels(hosts_);
    for (const Identity& identity : identities)
        for (const std::string& address : identity.addresses) {
            const auto [entry, is_new] = host_by_address_.emplace(address, identity.host);
            if (!is_new && entry->second != identity.host) entry->second.clear();
        }
    if (rank_ == 0) report_ranks(sink, identities, labels_);
}

std::string Session::host_at(const std::string& address) const {
    const auto entry = host_by_address_.find(address);
    return entry == host_by_address_.end() ? "" : entry->second;
}

int Session::ranks_on_this_host() const {
    return static_cast<int>(std::ranges::count(hosts_, host(rank_)));
}

bool Session::first_on_host() const {
    return std::ranges::find(hosts_, host(rank_)) - hosts_.begin() == rank_;
}

bool Session::several_hosts() const {
    return std::ranges::any_of(hosts_,
                               [this](const std::string& h) { return h != hosts_.front(); });
}

bool Session::interrupted() { return signal_time.load(std::memory_order_relaxed) != 0; }

bool Session::forget_signal() { return signal_time.exchange(0) != 0; }

void Session::sum(std::span<double> values) {
    transport.begin_sum(values);
    finish_collective();
}

void Session::max(std::span<double> values) {
    transport.begin_max(values);
    finish_collective();
}

void Session::max_sleeping(double& agreed) {
    transport.begin_max({&agreed, 1});
    finish_collective(sleep_interval);
}

void Session::finish_collective(Nanoseconds pause) {
    const Nanoseconds begin = transport.clock();
    while (!transport.test_collective()) {
        const Nanoseconds waited = transport.clock() - begin;
        if (pause > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(pause));
        else if (waited > limits_.spin) sched_yield();
        if (waited > limits_.timeout * 3 / 2 + 4 * expected_) find_missing_ranks(waited);
    }
    note_progress(transport.clock());
}

// Finds the ranks that have not entered the collective, and fails. Each waiting rank reports to two
// collector ranks (one of them may be missing itself). The collectors name the ranks that did not
// report; the other ranks wait longer, so that the collectors fail first.
void Session::find_missing_ranks(Nanoseconds waited) {
    const std::uint64_t present = 1;
    std::vector<std::uint64_t> answers(hosts_.size());
    std::vector<int> missing;
    std::map<Ticket, int> expected;
    for (int collector = 0; collector < collectors; ++collector)
        if (rank_ != collector) transport.send(&present, sizeof present, collector, tag_present);
    for (int peer = 0; rank_ < collectors && peer < size(); ++peer)
        if (peer != rank_)
            expected[transport.receive(&answers[static_cast<std::size_t>(peer)], sizeof present,
                                       peer, tag_present)] = peer;
    const Nanoseconds begin = transport.clock(),
                      limit = limits_.timeout / (rank_ < collectors ? 2 : 1);
    for (std::vector<Ticket> answered;
         transport.clock() - begin < limit && (rank_ >= collectors || !expected.empty());) {
        answered.clear();
        transport.poll(answered);
        for (const Ticket ticket : answered) expected.erase(ticket);
        sched_yield();
    }
    missing.reserve(expected.size());
    for (const auto& [ticket, peer] : expected) missing.push_back(peer);
    std::ranges::sort(missing);
    give_up(waited + transport.clock() - begin, missing);
}

std::vector<std::string> Session::gather(const std::string& value) {
    return guarded("waits for every host's results", -1, [&] { return transport.gather(value); });
}

double Session::memory(double minimum, double requested, const std::string& purpose) {
    const int sharing = transport.simulated() ? size() : ranks_on_this_host();
    const double available = static_cast<double>(available_memory()) / sharing;
    double agreed[] = {minimum - available, minimum, -available};
    max(agreed);
    if (agreed[0] > 0)
        throw Error(fmt::format("{} need {} per rank, {} more than a host has available", purpose,
                                format_bytes(agreed[1]), format_bytes(agreed[0])),
                    "lower the message size, --nflight or the number of ranks per host");
    return std::min(requested, -agreed[2] / 2);
}

void Session::progress(double done, const std::string& label, double left) {
    if (rank_ != 0 || now() - last_progress_ < progress_interval) return;
    last_progress_ = now();
    sink.progress(std::clamp(done, 0.0, 1.0), label, left);
}

void Session::fail(const std::string& what, const std::string& fix, int peer) {
    sink.failure(label(rank_) + ": " + what, fix,
                 {.host = label(rank_), .peer = peer < 0 ? "" : label(peer), .rank = rank_});
    transport.abort(exit_unusable);
    __builtin_unreachable();
}

void Session::give_up(Nanoseconds waited, const std::vector<int>& peers) {
    std::string names;
    for (std::size_t i = 0; i < std::min(peers.size(), max_named_hosts); ++i)
        names += (i ? ", " : "") + label(peers[i]);
    if (peers.size() > max_named_hosts)
        names += fmt::format(" and {} more", peers.size() - max_named_hosts);
    fail(fmt::format("no progress for {:.1f} s, waiting for {}", seconds(waited),
                     names.empty() ? "the other hosts" : names),
         "check that the host is up and reachable, or raise --timeout",
         peers.empty() ? -1 : peers.front());
}

// Runs on the watchdog's thread while the main thread is blocked in the transport, so it ends the
// process directly.
void Session::report_stall() {
    const bool has_labels = !labels_.empty();
    const std::string name = has_labels ? label(rank_) : transport.host();
    const std::string peer = has_labels && awaited_peer_ >= 0 ? label(awaited_peer_) : "";
    sink.failure(fmt::format("{} {} for more than {:.0f} s{}{}", name, blocking_call_,
                             seconds(limits_.timeout) * 1.5, peer.empty() ? "" : ": ", peer),
                 "check that every host is up and reachable, or raise --timeout",
                 {.host = name, .peer = peer, .rank = rank_});
    _exit(exit_unusable);
}

}  // namespace assay::network
