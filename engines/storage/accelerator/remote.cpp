// Connections of this rank to the services of other nodes: the exchange of the token and the
// addresses at the start, a cache of connections, and requests over them.
#include "storage/accelerator/remote.hpp"

#include <arpa/inet.h>

#include <algorithm>

#include "storage/accelerator/job.hpp"
#include "storage/accelerator/node_addresses.hpp"

namespace assay::storage {
namespace {

constexpr std::size_t max_connections = 64;  // of a rank; the least recently used one is closed

std::string address_text(std::uint32_t host) {
    char text[INET_ADDRSTRLEN] = "?";
    inet_ntop(AF_INET, &host, text, sizeof text);
    return text;
}

}  // namespace

std::unique_ptr<Remote> Remote::start(Job& job, std::string& error) {
    std::unique_ptr<Remote> remote(new Remote(job));
    remote->share_token(error);
    remote->share_addresses(error);
    if (error.empty()) error = remote->check_connection_to_next_node();
    return remote;
}

// Rank 0 makes the token, and MPI distributes it. With it a caller proves that it belongs to the
// job.
void Remote::share_token(std::string& error) {
    if (job_.rank() == 0) {
        if (const auto token = session::make_token()) token_ = *token;
        else error = "the kernel has no random numbers";
    }
    PMPI_Bcast(token_.bytes.data(), static_cast<int>(token_.bytes.size()), MPI_BYTE, 0,
               job_.world());
}

// Chooses the address of each node, starts the service of this node, and exchanges the ports.
void Remote::share_addresses(std::string& error) {
    const std::string& interface = job_.settings().interface;
    const NodeAddresses local = local_addresses(interface);
    std::vector<NodeAddresses> all(static_cast<std::size_t>(job_.size()));
    PMPI_Allgather(&local, sizeof local, MPI_BYTE, all.data(), sizeof local, MPI_BYTE,
                   job_.world());
    std::vector<NodeAddresses> by_node(static_cast<std::size_t>(job_.nodes()));
    nodes_.resize(by_node.size());
    for (int rank = 0; rank < job_.size(); ++rank) {
        const auto node = static_cast<std::size_t>(job_.node_of(rank));
        nodes_[node].positions.push_back(0);
        if (job_.local_rank_of(rank) == 0) by_node[node] = all[static_cast<std::size_t>(rank)];
    }
    const auto hosts = choose_addresses(by_node);
    for (std::size_t node = 0; node < nodes_.size(); ++node) nodes_[node].host = hosts[node];

    const std::uint32_t host = nodes_[static_cast<std::size_t>(job_.node())].host;
    if (job_.local_rank() == 0 && error.empty()) {
        if (host) service_ = Service::start(job_.store(), token_, host, error);
        else if (interface.empty()) error = "a node has no IPv4 address";
        else
            error = "ASSAY_IO_INTERFACE=" + interface +
                    ": a node has no such interface with an "
                    "IPv4 address that is up";
    }
    const std::uint32_t port = service_ ? service_->port() : 0;
    std::vector<std::uint32_t> ports(static_cast<std::size_t>(job_.size()));
    PMPI_Allgather(&port, 1, MPI_UINT32_T, ports.data(), 1, MPI_UINT32_T, job_.world());
    for (int rank = 0; rank < job_.size(); ++rank)
        if (job_.local_rank_of(rank) == 0)
            nodes_[static_cast<std::size_t>(job_.node_of(rank))].port =
                ports[static_cast<std::size_t>(rank)];
}

// Each leader connects to the next node, so that an unreachable address is found at the start and
// not at a read.
std::string Remote::check_connection_to_next_node() {
    if (job_.local_rank() != 0) return {};
    const int next = (job_.node() + 1) % job_.nodes();
    const Node& node = nodes_[static_cast<std::size_t>(next)];
    if (!node.port || client(next)) return {};
    return "a node cannot reach the next one at " + address_text(node.host) + ", TCP port " +
           std::to_string(node.port) +
           "; fix: set ASSAY_IO_INTERFACE to the interface of the network between the nodes, or "
           "open its ports";
}

// The connection to a node, which is made if there is none; null if that fails.
ServiceClient* Remote::client(int node) {
    const auto existing = connections_.find(node);
    if (existing != connections_.end()) {
        existing->second.last_use = ++last_use_;
        return existing->second.client.get();
    }
    const Node& target = nodes_[static_cast<std::size_t>(node)];
    if (!target.port) return nullptr;
    auto connection = ServiceClient::connect_to(target.host, target.port, token_);
    if (!connection) return nullptr;
    if (connections_.size() >= max_connections)
        connections_.erase(std::min_element(
            connections_.begin(), connections_.end(),
            [](auto& a, auto& b) { return a.second.last_use < b.second.last_use; }));
    return connections_.emplace(node, Connection{std::move(connection), ++last_use_})
        .first->second.client.get();
}

bool Remote::with_client(int node, const std::function<bool(ServiceClient&)>& action) {
    for (int attempt = 0; attempt < 2; ++attempt) {
        ServiceClient* connection = client(node);
        if (!connection) return false;
        if (action(*connection)) return true;
        const bool was_closed = connection->closed();
        connections_.erase(node);
        if (!was_closed) return false;
    }
    return false;
}

void Remote::fetch(std::vector<RemoteRead>& reads) {
    std::lock_guard guard(lock_);
    std::map<int, std::vector<NodeRead>> by_node;
    for (auto& read : reads) {
        read.state = RemoteRead::failed;
        by_node[job_.node_of(read.world_rank)].push_back(
            {job_.local_rank_of(read.world_rank), &read});
    }
    for (auto& [node, node_reads] : by_node)
        with_client(node, [&](ServiceClient& connection) { return connection.fetch(node_reads); });
}

bool Remote::fetch_updates(const std::set<int>& nodes, Push push,
                           const RecordHandler& handle, std::map<int, Progress>& progress) {
    std::lock_guard guard(lock_);
    bool succeeded = true;
    std::vector<int> batch;
    for (auto it = nodes.begin(); it != nodes.end();) {
        batch.clear();
        for (; it != nodes.end() && batch.size() < max_connections; ++it) batch.push_back(*it);
        succeeded &= fetch_batch(batch, push, handle, progress);
    }
    return succeeded;
}

// Sends the requests to all nodes of the batch before it receives the first answer.
bool Remote::fetch_batch(const std::vector<int>& nodes, Push push,
                         const RecordHandler& handle, std::map<int, Progress>& progress) {
    const std::uint64_t now = job_.store().now();
    const auto positions = [this](int node) -> std::vector<std::uint64_t>& {
        return nodes_[static_cast<std::size_t>(node)].positions;
    };
    const auto request = [&](int node) {
        return with_client(node, [&](ServiceClient& connection) {
            return connection.request_updates(now, push, positions(node));
        });
    };
    bool succeeded = true;
    for (const int node : nodes) succeeded &= request(node);
    for (const int node : nodes) {
        if (!connections_.count(node)) continue;  // the request could not be sent
        Update update{};
        bool is_pending = true;
        const auto receive = [&](ServiceClient& connection) {
            if (!is_pending && !connection.request_updates(now, push, positions(node)))
                return false;
            is_pending = false;  // a second call has a new connection, so the request is sent again
            return connection.receive_updates(
                now, positions(node),
                [&](std::uint32_t rank, std::uint64_t position, const Record& record,
                    const Progress& of_node) {
                    handle(node, rank, position, record, of_node);
                },
                update);
        };
        if (with_client(node, receive)) progress[node] = update.progress;
        else succeeded = false;
    }
    return succeeded;
}

void Remote::forget_updates(int node) {
    std::lock_guard guard(lock_);
    auto& positions = nodes_[static_cast<std::size_t>(node)].positions;
    std::fill(positions.begin(), positions.end(), 0);
}

bool Remote::update_shared_file_pointer(int world_rank, std::uint32_t slot, std::int64_t amount,
                                        bool set, std::uint64_t& before) {
    std::lock_guard guard(lock_);
    return with_client(job_.node_of(world_rank), [&](ServiceClient& connection) {
        return connection.update_shared_file_pointer(slot, amount, set, before);
    });
}

}  // namespace assay::storage
