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

std::unique_ptr<Remote> Remote::start(Job& job, std::string& wrong) {
    std::unique_ptr<Remote> remote(new Remote(job));
    if (job.rank() == 0 &&
        getrandom(remote->key_.data(), sizeof remote->key_, 0) != sizeof remote->key_)
        wrong = "no random numbers";
    PMPI_Bcast(remote->key_.data(), sizeof remote->key_, MPI_BYTE, 0, job.world());
    if (job.local() == 0) remote->service_ = Service::start(job.store(), remote->key_, wrong);
    const Address mine = remote->own_address();
    std::vector<Address> all(static_cast<std::size_t>(job.size()));
    PMPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, job.world());
    remote->addresses_.resize(static_cast<std::size_t>(job.nodes()));
    for (int rank = 0; rank < job.size(); ++rank)
        if (job.local_of(rank) == 0)
            remote->addresses_[static_cast<std::size_t>(job.node_of(rank))] =
                all[static_cast<std::size_t>(rank)];

    const auto reach = job.settings().reach;
    int rdma = reach == Reach::rma || (reach == Reach::automatic && has_rdma());
    PMPI_Allreduce(MPI_IN_PLACE, &rdma, 1, MPI_INT, MPI_MIN, job.world());
    if (rdma) {
        std::string why;
        remote->window_ = Window::open(job, why);
        if (!remote->window_) job.say(why + "; other nodes' data come by the service");
    }
    return remote;
}

Remote::~Remote() = default;

Remote::Address Remote::own_address() const {
    Address mine{};
    mine.port = service_ ? service_->port() : 0;
    ifaddrs* list = nullptr;
    if (getifaddrs(&list)) return mine;
    const auto& chosen = job_.settings().interface;
    for (const bool loopback : {false, true})  // the loopback only where there is nothing else
        for (auto* at = list; at && mine.count < most_addresses; at = at->ifa_next) {
            if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET || !(at->ifa_flags & IFF_UP))
                continue;
            if (chosen.empty()
                    ? bool(at->ifa_flags & IFF_LOOPBACK) != loopback || (loopback && mine.count)
                    : chosen != at->ifa_name)
                continue;
            mine.hosts[mine.count++] =
                reinterpret_cast<sockaddr_in*>(at->ifa_addr)->sin_addr.s_addr;
        }
    freeifaddrs(list);
    return mine;
}

// The way to a node: by the first of its addresses at which it is itself that answers.
Caller* Remote::caller(int node) {
    auto& known = callers_[node];
    const auto& address = addresses_[static_cast<std::size_t>(node)];
    for (std::uint32_t k = 0; k < address.count && !known; ++k)
        known = Caller::reach(address.hosts[k], address.port, key_);
    return known.get();
}

void Remote::fetch(std::vector<Wanted>& wanted) {
    std::lock_guard hold(talking_);
    if (window_) {
        std::vector<Wanted*> all;
        for (auto& each : wanted) all.push_back(&each);
        if (window_->fetch(all)) return;
    }
    std::map<int, std::vector<Asked>> by_node;
    for (auto& each : wanted) {
        each.fate = Wanted::failed;
        by_node[job_.node_of(each.world_rank)].push_back({job_.local_of(each.world_rank), &each});
    }
    for (auto& [node, asked] : by_node)
        if (Caller* of = caller(node); of && !of->fetch(asked)) callers_.erase(node);
}

bool Remote::news(const std::set<int>& nodes, bool hurry, const Tell& tell,
                  std::map<int, Progress>& progress) {
    std::lock_guard hold(talking_);
    std::set<int> asked;
    const std::uint64_t now = job_.store().now();
    for (int node : nodes)
        if (Caller* of = caller(node); of && of->ask_for_news(now, hurry)) asked.insert(node);
    bool good = asked.size() == nodes.size();
    for (int node : asked) {
        News news{};
        if (caller(node)->take_news(
                now,
                [&](std::uint32_t rank, std::uint64_t position, const Record& record) {
                    tell(node, rank, position, record);
                },
                news)) {
            progress[node] = news.progress;
        } else {
            callers_.erase(node);
            good = false;
        }
    }
    return good;
}

bool Remote::pointer(int world_rank, std::uint32_t slot, std::int64_t amount, bool set,
                     std::uint64_t& before) {
    std::lock_guard hold(talking_);
    Caller* of = caller(job_.node_of(world_rank));
    return of && of->pointer(slot, amount, set, before);
}

}  // namespace assay::storage
