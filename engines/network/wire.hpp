// What a network measurement says of the hosts it ran on: a context each before, and after it what
// their ports counted, held against the payload.
#pragma once

#include <cstdint>

#include "network/counters.hpp"
#include "network/session.hpp"

namespace assay::network {

// Collective: facts of each host, its MPI library and its ranks.
void report_context(Session& session);

// Counts from construction on.
class Wire {
public:
    explicit Wire(Session& session);
    // Collective. `sent_away`: payload bytes that this rank sent to other hosts.
    void report(std::uint64_t sent_away);

private:
    Session& session_;
    Counters before_;
};

}  // namespace assay::network
