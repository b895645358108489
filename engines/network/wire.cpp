// Records the contexts of the hosts, and compares their port counters with the payload.
#include "network/wire.hpp"

#include <map>
#include <utility>

#include "core/facts.hpp"
#include "core/topology.hpp"
#include "network/measurements.hpp"

namespace assay::network {
namespace {

std::string ranks_on_host(const Session& session, const std::string& host) {
    std::string ranks;
    for (int rank = 0; rank < session.size(); ++rank)
        if (session.host(rank) == host) ranks += (ranks.empty() ? "" : ",") + std::to_string(rank);
    return ranks;
}

Summary counter_summary(double value) { return summarize({&value, 1}); }

}  // namespace

void report_context(Session& session) {
    Json host_data = Json::array();
    // In a simulation the facts of the simulating machine do not matter.
    if (session.transport.simulated()) {
        if (session.first_on_host())
            host_data.push_back({{"device", ""},
                                 {"numa", -1},
                                 {"facts",
                                  {{"machine.virtual", "simulated"},
                                   {"mpi.library", session.transport.library()}}}});
    } else if (session.first_on_host()) {
        for (const Context& context : contexts())
            host_data.push_back({{"device", context.subject.device},
                                 {"numa", context.subject.numa.value_or(-1)},
                                 {"facts", context.facts}});
        host_data[0]["facts"]["mpi.library"] = session.transport.library();
        host_data[0]["facts"]["mpi.ranks"] = ranks_on_host(session, session.host(session.rank()));
    }
    const auto gathered = session.gather(host_data.dump());
    for (std::size_t rank = 0; rank < gathered.size(); ++rank)
        for (const Json& entry : Json::parse(gathered[rank])) {
            Subject subject{.host = session.host(static_cast<int>(rank)),
                            .device = entry["device"]};
            if (const int numa = entry["numa"]; numa >= 0) subject.numa = numa;
            session.sink.context(subject, entry["facts"]);
        }
}

WireMonitor::WireMonitor(Session& session, Json params, Detail detail)
    : session_(session), params_(std::move(params)), detail_(detail) {
    if (session.transport.simulated() || !session.first_on_host()) return;
    concurrent_runs_.emplace();
    before_ = read_counters();
    if (detail_ == Detail::peers) connections_before_ = read_connections();
}

void WireMonitor::report(std::uint64_t bytes_sent_off_host) {
    if (session_.transport.simulated()) return;
    Json host_data = {{"payload", bytes_sent_off_host}};
    if (session_.first_on_host()) {
        const Counters growth = difference(before_, read_counters());
        for (const auto& [key, value] : growth)
            host_data["counters"].push_back({key.first, key.second, value});
        host_data["wire"] = bytes_on_the_wire(growth);
        host_data["others"] = concurrent_runs_->count();
        if (detail_ == Detail::peers)
            for (const auto& [peer, count] :
                 growth_by_peer(connections_before_, read_connections()))
                host_data["peers"].push_back({peer, count.sent, count.retransmitted});
    }
    const auto gathered = session_.gather(host_data.dump());
    if (session_.rank() != 0) return;
    std::map<std::string, double> payload, wire_bytes;
    for (std::size_t rank = 0; rank < gathered.size(); ++rank) {
        const Json entry = Json::parse(gathered[rank]);
        const std::string& host = session_.host(static_cast<int>(rank));
        payload[host] += entry["payload"].get<double>();
        if (!entry.contains("wire")) continue;
        wire_bytes[host] = entry["wire"].get<double>();
        if (const double others = entry["others"]; others > 0)
            session_.sink.measurement(wire, "other_runs", {.host = host}, params_,
                                      counter_summary(others));
        if (entry.contains("peers")) report_peers(host, entry["peers"]);
        if (!entry.contains("counters")) continue;
        for (const Json& counter : entry["counters"])
            session_.sink.measurement(counters, counter[1].get<std::string>(),
                                      {.host = host, .device = counter[0]}, params_,
                                      counter_summary(counter[2].get<double>()));
    }
    if (!session_.several_hosts()) return;
    for (const auto& [host, bytes] : payload)
        if (bytes > 0)
            session_.sink.measurement(wire, "share", {.host = host}, params_,
                                      counter_summary(wire_bytes[host] / bytes));
}

// `peers`: [address, segments sent, segments sent again]. Addresses outside the job are left out.
void WireMonitor::report_peers(const std::string& host, const Json& peers) {
    std::map<std::string, std::pair<double, double>> segments;
    for (const Json& peer : peers) {
        const std::string other = session_.host_at(peer[0]);
        if (other.empty() || other == host) continue;
        segments[other].first += peer[1].get<double>();
        segments[other].second += peer[2].get<double>();
    }
    for (const auto& [other, count] : segments) {
        const Subject subject{.host = host, .peer = other, .device = "tcp"};
        session_.sink.measurement(counters, "tcp_sent", subject, params_,
                                  counter_summary(count.first));
        session_.sink.measurement(counters, "tcp_retransmitted", subject, params_,
                                  counter_summary(count.second));
    }
}

}  // namespace assay::network
