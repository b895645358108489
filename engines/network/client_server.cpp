// Every client with every server, all at once: what a storage system or a parameter server asks of
// a network. Clients initiate: they send and put to the servers, and get from them.
//
// A send is acknowledged only once it has arrived, so that its time is that of a round trip.
#include <algorithm>

#include "core/options.hpp"
#include "network/group.hpp"
#include "network/measurements.hpp"
#include "network/sweep.hpp"

namespace assay::network {

void detail::run_client_server(const Options& options, Bench& bench) {
    run_group(options, bench, [&](Session& session) {
        const int servers = static_cast<int>(options.integer("servers")),
                  clients = session.size() - servers;
        const Schedule towards = Schedule::client_server(session.size(), servers, true);
        const Schedule from = Schedule::client_server(session.size(), servers, false);
        run_sweep(
            session, client_server, read_sweep(options, Op::request),
            {.schedule = [&](Op op) -> const Schedule& { return op == Op::get ? from : towards; },
             .lanes = std::max(servers, clients),
             .lanes_here = session.rank() < servers ? clients : servers,
             .initiated_lanes = servers,
             .params = {{"clients", clients}, {"servers", servers}}});
    });
}

}  // namespace assay::network
