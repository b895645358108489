// The records of a network measurement about its hosts: a context of each host before the
// measurement; the growth of their port counters after it, compared with the payload.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "network/concurrent_runs.hpp"
#include "network/connections.hpp"
#include "network/counters.hpp"
#include "network/session.hpp"

namespace assay::network {

// Collective: records the facts of each host, its MPI library and its ranks.
void report_context(Session& session);

// Compares the port counters with the payload, from construction on.
class WireMonitor {
public:
    enum class Detail { host, peers };
    // `params` are put into its records, to distinguish the parts of a run. With Detail::peers
    // TCP's segments are also recorded for each host and peer; for few peers only, because each
    // gives two records.
    explicit WireMonitor(Session& session, Json params = Json::object(),
                         Detail detail = Detail::host);
    // Collective. `bytes_sent_off_host`: payload that this rank sent to other hosts.
    void report(std::uint64_t bytes_sent_off_host);

private:
    void report_peers(const std::string& host, const Json& peers);

    Session& session_;
    const Json params_;
    const Detail detail_;
    Counters before_;
    Connections connections_before_;
    std::optional<ConcurrentRuns> concurrent_runs_;  // on the first rank of each host
};

}  // namespace assay::network
