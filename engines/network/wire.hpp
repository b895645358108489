// What a network measurement records about its hosts: a context of each host before, and after it
// the growth of their port counters, compared with the payload.
#pragma once

#include <cstdint>

#include "network/counters.hpp"
#include "network/session.hpp"

namespace assay::network {

// Collective: records the facts of each host, its MPI library and its ranks.
void report_context(Session& session);

// Compares the port counters with the payload, from construction on.
class WireMonitor {
public:
    explicit WireMonitor(Session& session);
    // Collective. `bytes_sent_off_host`: payload that this rank sent to other hosts.
    void report(std::uint64_t bytes_sent_off_host);

private:
    Session& session_;
    Counters before_;
};

}  // namespace assay::network
