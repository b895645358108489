#include "storage/accelerator/remote.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "storage/accelerator/job.hpp"

namespace assay::storage {
namespace {

constexpr int patience_ms = 3000;       // for a connection, by each address
constexpr int answer_ms = 60'000;       // for the next byte of an answer
constexpr std::size_t asked_at_once = 64;

bool has_rdma() { return access("/sys/class/infiniband/.", F_OK) == 0; }

bool send_all(int fd, const void* data, std::size_t bytes) {
    for (const char* at = static_cast<const char*>(data); bytes;) {
        const ssize_t got = send(fd, at, bytes, MSG_NOSIGNAL);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        at += got;
        bytes -= static_cast<std::size_t>(got);
    }
    return true;
}

bool receive_all(int fd, void* data, std::size_t bytes) {
    for (char* at = static_cast<char*>(data); bytes;) {
        const ssize_t got = recv(fd, at, bytes, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;  // also after answer_ms without a byte
        at += got;
        bytes -= static_cast<std::size_t>(got);
    }
    return true;
}

void limit(int fd, int milliseconds) {
    const timeval time{milliseconds / 1000, milliseconds % 1000 * 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

// A connection to whoever knows the key; -1: nobody does there.
int reach(std::uint32_t host, std::uint32_t port, const Key& key) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    limit(fd, patience_ms);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = host;
    to.sin_port = htons(static_cast<std::uint16_t>(port));
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    Key answer{};
    const bool good = connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 && send_all(fd, key.data(), sizeof key) &&
                      receive_all(fd, answer.data(), sizeof answer) && answer == key;
    if (!good) {
        close(fd);
        return -1;
    }
    limit(fd, answer_ms);
    return fd;
}

}  // namespace

std::unique_ptr<Remote> Remote::start(Job& job, std::string& wrong) {
    std::unique_ptr<Remote> remote(new Remote(job));
    if (job.rank() == 0 && getrandom(remote->key_.data(), sizeof remote->key_, 0) != sizeof remote->key_) wrong = "no random numbers";
    PMPI_Bcast(remote->key_.data(), sizeof remote->key_, MPI_BYTE, 0, job.world());
    if (job.local() == 0) remote->service_ = Service::start(job.store(), remote->key_, wrong);
    const Address mine = remote->own_address();
    std::vector<Address> all(static_cast<std::size_t>(job.size()));
    PMPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, job.world());
    remote->addresses_.resize(static_cast<std::size_t>(job.nodes()));
    for (int rank = 0; rank < job.size(); ++rank)
        if (job.local_of(rank) == 0) remote->addresses_[static_cast<std::size_t>(job.node_of(rank))] = all[static_cast<std::size_t>(rank)];

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

Remote::~Remote() {
    for (auto [node, fd] : connections_) close(fd);
}

Remote::Address Remote::own_address() const {
    Address mine{};
    mine.port = service_ ? service_->port() : 0;
    ifaddrs* list = nullptr;
    if (getifaddrs(&list)) return mine;
    const auto& chosen = job_.settings().interface;
    for (const bool loopback : {false, true})  // the loopback only where there is nothing else
        for (auto* at = list; at && mine.count < most_addresses; at = at->ifa_next) {
            if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET || !(at->ifa_flags & IFF_UP)) continue;
            if (chosen.empty() ? bool(at->ifa_flags & IFF_LOOPBACK) != loopback || (loopback && mine.count) : chosen != at->ifa_name) continue;
            mine.hosts[mine.count++] = reinterpret_cast<sockaddr_in*>(at->ifa_addr)->sin_addr.s_addr;
        }
    freeifaddrs(list);
    return mine;
}

int Remote::connection(int node) {
    const auto found = connections_.find(node);
    if (found != connections_.end()) return found->second;
    const auto& address = addresses_[static_cast<std::size_t>(node)];
    for (std::uint32_t k = 0; k < address.count; ++k)
        if (const int fd = reach(address.hosts[k], address.port, key_); fd >= 0) return connections_[node] = fd;
    return -1;
}

void Remote::fetch(std::vector<Wanted>& wanted) {
    std::vector<Wanted*> all;
    std::map<int, std::vector<Wanted*>> by_node;
    for (auto& each : wanted) {
        all.push_back(&each);
        by_node[job_.node_of(each.world_rank)].push_back(&each);
    }
    if (window_ && window_->fetch(all)) return;
    for (auto& [node, of] : by_node) ask(node, of);
}

// Many requests are on their way before the first answer: a strided read costs one round trip, not one a block.
void Remote::ask(int node, std::vector<Wanted*>& wanted) {
    const int fd = connection(node);
    bool good = fd >= 0;
    std::size_t asked = 0;
    for (std::size_t k = 0; k < wanted.size(); ++k) {
        if (good && asked == k) {
            std::vector<Request> requests;
            for (; asked < wanted.size() && requests.size() < asked_at_once; ++asked)
                requests.push_back({Request::bytes, job_.local_of(wanted[asked]->world_rank), wanted[asked]->place, wanted[asked]->bytes});
            good = send_all(fd, requests.data(), requests.size() * sizeof(Request));
        }
        std::uint64_t head = 0, tail = 0;
        good = good && receive_all(fd, &head, sizeof head);
        if (good && head) good = receive_all(fd, wanted[k]->to, wanted[k]->bytes) && receive_all(fd, &tail, sizeof tail);
        wanted[k]->fate = !good ? Wanted::failed : tail ? Wanted::had : Wanted::gone;
    }
    if (!good && fd >= 0) {
        close(fd);
        connections_.erase(node);
    }
}

bool Remote::pointer(int world_rank, std::uint32_t slot, std::int64_t amount, bool set, std::uint64_t& before) {
    const int fd = connection(job_.node_of(world_rank));
    const Request request{set ? Request::set : Request::add, slot, 0, static_cast<std::uint64_t>(amount)};
    return fd >= 0 && send_all(fd, &request, sizeof request) && receive_all(fd, &before, sizeof before);
}

}  // namespace assay::storage
