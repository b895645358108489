// network.client_server: every client with every server at once, as storage systems and parameter
// servers load a network. Clients initiate: they send and put to the servers, and get from them.
//
// A send is acknowledged after it has arrived, so its time is that of a round trip.
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
        const Schedule to_servers = Schedule::client_server(session.size(), servers, true);
        const Schedule from_servers = Schedule::client_server(session.size(), servers, false);
        run_sweep(session, client_server, parse_sweep(options, Op::request),
                  {.schedule = [&](Op op) -> const Schedule& {
                       return op == Op::get ? from_servers : to_servers;
                   },
                   .max_flows = std::max(servers, clients),
                   .local_flows = session.rank() < servers ? clients : servers,
                   .flows_per_initiator = servers,
                   .params = {{"clients", clients}, {"servers", servers}}});
    });
}

}  // namespace assay::network
