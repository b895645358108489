#include "network/wire.hpp"

#include <algorithm>

#include "core/facts.hpp"
#include "core/topology.hpp"
#include "network/measurements.hpp"

namespace assay::network {
namespace {

std::string ranks_of(const Session& session, const std::string& host) {
    std::string ranks;
    for (int rank = 0; rank < session.size(); ++rank)
        if (session.host(rank) == host) ranks += (ranks.empty() ? "" : ",") + std::to_string(rank);
    return ranks;
}

Summary single(double value) { return summarize({&value, 1}); }

}  // namespace

void report_context(Session& session) {
    Json mine = Json::array();
    if (session.transport
            .simulated()) {  // of the machine that simulates nothing is told: it does not matter
        if (session.first_on_host())
            mine.push_back({{"device", ""},
                            {"numa", -1},
                            {"facts",
                             {{"machine.virtual", "simulated"},
                              {"mpi.library", session.transport.library()}}}});
    } else if (session.first_on_host()) {
        for (const Context& one : contexts())
            mine.push_back({{"device", one.subject.device},
                            {"numa", one.subject.numa.value_or(-1)},
                            {"facts", one.facts}});
        mine[0]["facts"]["mpi.library"] = session.transport.library();
        mine[0]["facts"]["mpi.ranks"] = ranks_of(session, session.host(session.rank()));
    }
    const auto all = session.gather(mine.dump());
    for (std::size_t rank = 0; rank < all.size(); ++rank)
        for (const Json& one : Json::parse(all[rank])) {
            Subject subject{.host = session.host(static_cast<int>(rank)), .device = one["device"]};
            if (const int numa = one["numa"]; numa >= 0) subject.numa = numa;
            session.sink.context(subject, one["facts"]);
        }
}

Wire::Wire(Session& session) : session_(session) {
    if (session.first_on_host()) before_ = read_counters();
}

void Wire::report(std::uint64_t sent_away) {
    if (session_.transport.simulated()) return;
    Json mine = {{"sent_away", sent_away}};
    if (session_.first_on_host()) {
        const Counters changed = difference(before_, read_counters());
        for (const auto& [key, value] : changed)
            mine["counters"].push_back({key.first, key.second, value});
        mine["wire"] = bytes_on_the_wire(changed);
    }
    const auto all = session_.gather(mine.dump());
    if (session_.rank() != 0) return;
    std::map<std::string, double> payload, carried;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        const Json one = Json::parse(all[rank]);
        const std::string& host = session_.host(static_cast<int>(rank));
        payload[host] += one["sent_away"].get<double>();
        if (!one.contains("wire")) continue;
        carried[host] = one["wire"].get<double>();
        if (!one.contains("counters")) continue;
        for (const Json& counter : one["counters"])
            session_.sink.measurement(counters, counter[1].get<std::string>(),
                                      {.host = host, .device = counter[0]}, {},
                                      single(counter[2].get<double>()));
    }
    if (!session_.several_hosts()) return;
    for (const auto& [host, bytes] : payload)
        if (bytes > 0)
            session_.sink.measurement(wire, "share", {.host = host}, {},
                                      single(carried[host] / bytes));
}

}  // namespace assay::network
