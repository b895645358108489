#include "storage/accelerator/remote.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <unistd.h>

#include "storage/accelerator/job.hpp"

namespace assay::storage {
namespace {

bool has_rdma() { return access("/sys/class/infiniband/.", F_OK) == 0; }

}  // namespace

std::unique_ptr<Remote> Remote::start(Job& job, std::string& error) {
    std::unique_ptr<Remote> remote(new Remote(job));
    if (job.rank() == 0 &&
        getrandom(remote->key_.data(), sizeof remote->key_, 0) != sizeof remote->key_)
        error = "no random numbers";
    PMPI_Bcast(remote->key_.data(), sizeof remote->key_, MPI_BYTE, 0, job.world());
    if (job.local_rank() == 0) remote->service_ = Service::start(job.store(), remote->key_, error);
    const Address mine = remote->local_address();
    std::vector<Address> all(static_cast<std::size_t>(job.size()));
    PMPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, job.world());
    remote->addresses_.resize(static_cast<std::size_t>(job.nodes()));
    for (int rank = 0; rank < job.size(); ++rank)
        if (job.local_rank_of(rank) == 0)
            remote->addresses_[static_cast<std::size_t>(job.node_of(rank))] =
                all[static_cast<std::size_t>(rank)];

    const auto remote_access = job.settings().remote_access;
    int rdma = remote_access == RemoteAccess::rma ||
               (remote_access == RemoteAccess::automatic && has_rdma());
    PMPI_Allreduce(MPI_IN_PLACE, &rdma, 1, MPI_INT, MPI_MIN, job.world());
    if (rdma) {
        std::string reason;
        remote->window_ = Window::open(job, reason);
        if (!remote->window_) job.report(reason + "; data of other nodes are read over TCP");
    }
    return remote;
}

Remote::~Remote() = default;

Remote::Address Remote::local_address() const {
    Address mine{};
    mine.port = service_ ? service_->port() : 0;
    ifaddrs* list = nullptr;
    if (getifaddrs(&list)) return mine;
    const auto& chosen = job_.settings().interface;
    for (const bool loopback : {false, true})  // the loopback only where there is nothing else
        for (auto* interface = list; interface && mine.count < max_addresses;
             interface = interface->ifa_next) {
            if (!interface->ifa_addr || interface->ifa_addr->sa_family != AF_INET ||
                !(interface->ifa_flags & IFF_UP))
                continue;
            if (chosen.empty() ? bool(interface->ifa_flags & IFF_LOOPBACK) != loopback ||
                                     (loopback && mine.count)
                               : chosen != interface->ifa_name)
                continue;
            mine.hosts[mine.count++] =
                reinterpret_cast<sockaddr_in*>(interface->ifa_addr)->sin_addr.s_addr;
        }
    freeifaddrs(list);
    return mine;
}

// The connection to a node, by the first of its addresses that answers with the key.
ServiceClient* Remote::client(int node) {
    auto& connection = clients_[node];
    const auto& address = addresses_[static_cast<std::size_t>(node)];
    for (std::uint32_t k = 0; k < address.count && !connection; ++k)
        connection = ServiceClient::connect_to(address.hosts[k], address.port, key_);
    return connection.get();
}

void Remote::fetch(std::vector<RemoteRead>& reads) {
    std::lock_guard hold(lock_);
    if (window_) {
        std::vector<RemoteRead*> all;
        all.reserve(reads.size());
        for (auto& read : reads) all.push_back(&read);
        if (window_->fetch(all)) return;
    }
    std::map<int, std::vector<NodeRead>> by_node;
    for (auto& read : reads) {
        read.state = RemoteRead::failed;
        by_node[job_.node_of(read.world_rank)].push_back(
            {job_.local_rank_of(read.world_rank), &read});
    }
    for (auto& [node, node_reads] : by_node)
        if (ServiceClient* connection = client(node); connection && !connection->fetch(node_reads))
            clients_.erase(node);
}

bool Remote::fetch_updates(const std::set<int>& nodes, bool drain_now, const RecordHandler& handle,
                           std::map<int, Progress>& progress) {
    std::lock_guard hold(lock_);
    std::set<int> queried;
    const std::uint64_t now = job_.store().now();
    for (int node : nodes)
        if (ServiceClient* connection = client(node);
            connection && connection->request_updates(now, drain_now))
            queried.insert(node);
    bool good = queried.size() == nodes.size();
    for (int node : queried) {
        Update update{};
        if (client(node)->receive_updates(
                now,
                [&](std::uint32_t rank, std::uint64_t position, const Record& record) {
                    handle(node, rank, position, record);
                },
                update)) {
            progress[node] = update.progress;
        } else {
            clients_.erase(node);
            good = false;
        }
    }
    return good;
}

bool Remote::shared_pointer(int world_rank, std::uint32_t slot, std::int64_t amount, bool set,
                            std::uint64_t& before) {
    std::lock_guard hold(lock_);
    ServiceClient* connection = client(job_.node_of(world_rank));
    return connection && connection->shared_pointer(slot, amount, set, before);
}

}  // namespace assay::storage
