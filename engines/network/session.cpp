#include "network/session.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <map>
#include <thread>

#include "core/error.hpp"
#include "core/topology.hpp"

namespace assay::network {
namespace {

constexpr int exit_unusable = 2;
constexpr int exit_interrupted = 130;
constexpr Nanoseconds grace = 3'000'000'000;  // for the group to leave together after a signal
constexpr Nanoseconds progress_interval = 200'000'000;
constexpr Nanoseconds resting = 500'000;  // between two looks of a rank that has nothing to do
constexpr std::size_t named_at_most = 8;
constexpr int callers = 2, tag_roll = 3;

// A signal handler can reach nothing else: the time of the first signal, 0 before.
std::atomic<Nanoseconds> signalled{0};

extern "C" void on_signal(int) {
    Nanoseconds none = 0;
    signalled.compare_exchange_strong(none, now());
}

void end_if_ignored() {
    const Nanoseconds at = signalled.load();
    if (at != 0 && now() - at > grace) _exit(exit_interrupted);
}

std::string human(double bytes) {
    const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    std::size_t unit = 0;
    for (; bytes >= 1024 && unit < 5; ++unit) bytes /= 1024;
    return fmt::format("{:.{}f} {}", bytes, bytes < 10 && unit ? 1 : 0, units[unit]);
}

std::vector<std::string> split_lines(const std::string& text) {
    std::vector<std::string> lines;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = text.find('\n', at);
        lines.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return lines;
}

}  // namespace

std::vector<std::string> rank_labels(const std::vector<std::string>& hosts) {
    std::map<std::string, int> total, seen;
    for (const std::string& host : hosts) ++total[host];
    std::vector<std::string> labels;
    for (const std::string& host : hosts)
        labels.push_back(total[host] == 1 ? host : fmt::format("{}:{}", host, seen[host]++));
    return labels;
}

Session::Session(Bench& bench, Patience patience)
    : transport(bench.transport),
      sink(bench.sink),
      rank_(bench.transport.rank()),
      patience_(patience) {
    if (!transport.simulated())
        watchdog_.emplace(patience.timeout * 3 / 2, [this] { stalled(); }, end_if_ignored);
    std::signal(SIGINT, on_signal);
    std::signal(SIGTERM, on_signal);
    const std::vector<std::string> names = gather(transport.host());
    std::string all;
    for (const std::string& name : names) all += name + '\n';
    guarded("waits for the list of hosts", 0, [&] { transport.broadcast(all); });
    hosts_ = split_lines(all);
    labels_ = rank_labels(hosts_);
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

bool Session::interrupted() { return signalled.load(std::memory_order_relaxed) != 0; }

void Session::sum(std::span<double> values) {
    transport.begin_sum(values);
    finish_collective();
}

void Session::max(std::span<double> values) {
    transport.begin_max(values);
    finish_collective();
}

void Session::rest(double& agreed) {
    transport.begin_max({&agreed, 1});
    finish_collective(resting);
}

void Session::finish_collective(Nanoseconds pause) {
    const Nanoseconds begin = now();
    while (!transport.test_collective()) {
        const Nanoseconds still = now() - begin;
        if (pause > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(pause));
        else if (still > patience_.spin) sched_yield();
        if (still > patience_.timeout * 3 / 2 + 4 * expected_) call_the_roll(still);
    }
    moved(transport.clock());
}

// Who waits in the same collective says so to two ranks (one of them may be the one that is
// missing); these name those that said nothing, and the others leave it to them for as long as they
// wait.
void Session::call_the_roll(Nanoseconds still) {
    const std::uint64_t here = 1;
    std::vector<std::uint64_t> answers(hosts_.size());
    std::vector<int> missing;
    std::map<Ticket, int> expected;
    for (int caller = 0; caller < callers; ++caller)
        if (rank_ != caller) transport.send(&here, sizeof here, caller, tag_roll);
    for (int peer = 0; rank_ < callers && peer < size(); ++peer)
        if (peer != rank_)
            expected[transport.receive(&answers[static_cast<std::size_t>(peer)], sizeof here, peer,
                                       tag_roll)] = peer;
    const Nanoseconds begin = now(), limit = patience_.timeout / (rank_ < callers ? 2 : 1);
    for (std::vector<Ticket> answered;
         now() - begin < limit && (rank_ >= callers || !expected.empty());) {
        answered.clear();
        transport.poll(answered);
        for (const Ticket ticket : answered) expected.erase(ticket);
        sched_yield();
    }
    for (const auto& [ticket, peer] : expected) missing.push_back(peer);
    std::ranges::sort(missing);
    give_up(still + now() - begin, missing);
}

std::vector<std::string> Session::gather(const std::string& mine) {
    return guarded("waits for every host's results", -1, [&] { return transport.gather(mine); });
}

double Session::memory(double least, double wanted, const std::string& what) {
    const int sharing = transport.simulated() ? size() : ranks_on_this_host();
    const double available = static_cast<double>(available_memory()) / sharing;
    double agreed[] = {least - available, least, -available};
    max(agreed);
    if (agreed[0] > 0)
        throw Error(fmt::format("{} need {} a rank, {} more than a host has available", what,
                                human(agreed[1]), human(agreed[0])),
                    "lower the message size, --nflight or the number of ranks a host");
    return std::min(wanted, -agreed[2] / 2);
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

void Session::give_up(Nanoseconds still, const std::vector<int>& peers) {
    std::string names;
    for (std::size_t i = 0; i < std::min(peers.size(), named_at_most); ++i)
        names += (i ? ", " : "") + label(peers[i]);
    if (peers.size() > named_at_most)
        names += fmt::format(" and {} more", peers.size() - named_at_most);
    fail(fmt::format("nothing has moved for {:.1f} s, waiting for {}", seconds(still),
                     names.empty() ? "the other hosts" : names),
         "see whether that host is up and reachable, or raise --timeout",
         peers.empty() ? -1 : peers.front());
}

// On the watchdog's thread, while the main thread is inside the transport: end the process without
// it.
void Session::stalled() {
    const bool known = !labels_.empty();
    const std::string me = known ? label(rank_) : transport.host();
    const std::string peer = known && awaited_ >= 0 ? label(awaited_) : "";
    sink.failure(fmt::format("{} {} for more than {:.0f} s{}{}", me, doing_,
                             seconds(patience_.timeout) * 1.5, peer.empty() ? "" : ": ", peer),
                 "see whether every host is up and reachable, or raise --timeout",
                 {.host = me, .peer = peer, .rank = rank_});
    _exit(exit_unusable);
}

}  // namespace assay::network
