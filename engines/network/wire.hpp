// What a network measurement records about its hosts: a context of each host before, and after it
// the growth of their port counters, compared with the payload.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "network/connections.hpp"
#include "network/counters.hpp"
#include "network/presence.hpp"
#include "network/session.hpp"

namespace assay::network {

// Collective: records the facts of each host, its MPI library and its ranks.
void report_context(Session& session);

// Compares the port counters with the payload, from construction on.
class WireMonitor {
public:
    enum class Detail { host, peers };
    // `params` are put into its records: they tell the parts of a run apart. With Detail::peers
    // TCP's segments are also counted for each host and peer: few peers only, since each is a
    // record.
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
    std::optional<Presence> presence_;  // on the first rank of each host
};

}  // namespace assay::network
