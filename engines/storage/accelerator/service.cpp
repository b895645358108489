#include "storage/accelerator/service.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "storage/store/helper_thread.hpp"

namespace assay::storage {
namespace {

constexpr std::size_t receive_chunk = 64u << 10;
constexpr std::size_t send_chunk = 4u << 20;  // then the next client is served
constexpr int accept_pause_ms = 50;           // while the process has no descriptor left

}  // namespace

std::unique_ptr<Service> Service::start(Store& store, const Key& key, std::string& error) {
    std::unique_ptr<Service> service(new Service(store, key));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    socklen_t length = sizeof address;
    service->listening_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    service->epoll_ = epoll_create1(EPOLL_CLOEXEC);
    service->wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    const bool good =
        service->listening_ >= 0 && service->epoll_ >= 0 && service->wake_ >= 0 &&
        bind(service->listening_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
        listen(service->listening_, 1024) == 0 &&
        getsockname(service->listening_, reinterpret_cast<sockaddr*>(&address), &length) == 0;
    if (good) {
        service->port_ = ntohs(address.sin_port);
        service->watch(service->listening_, false, true);
        service->watch(service->wake_, false, true);
        service->running_ = start_helper_thread(service->thread_, run, service.get());
    }
    if (service->running_) return service;
    error = std::string("the service for other nodes cannot start: ") + std::strerror(errno);
    return nullptr;
}

Service::~Service() {
    stop_ = true;
    const std::uint64_t wake = 1;
    if (running_ && ::write(wake_, &wake, sizeof wake) == sizeof wake)
        pthread_join(thread_, nullptr);
    for (auto& [fd, client] : clients_) close(fd);
    for (int fd : {listening_, epoll_, wake_})
        if (fd >= 0) close(fd);
}

void* Service::run(void* self) {
    static_cast<Service*>(self)->serve();
    return nullptr;
}

void Service::watch(int fd, bool writing, bool add) {
    epoll_event event{};
    event.events = EPOLLIN | (writing ? EPOLLOUT : 0u);
    event.data.fd = fd;
    epoll_ctl(epoll_, add ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event);
}

void Service::serve() {
    epoll_event events[64];
    while (!stop_.load()) {
        const int n = epoll_wait(epoll_, events, 64, accepts_ ? -1 : accept_pause_ms);
        if (n == 0) listen_for_clients(true);
        for (int k = 0; k < n; ++k) {
            const int fd = events[k].data.fd;
            if (fd == wake_) continue;
            if (fd == listening_) {
                accept_client();
                continue;
            }
            auto& client = clients_[fd];
            bool good = !(events[k].events & (EPOLLERR | EPOLLHUP));
            if (good && events[k].events & EPOLLIN) good = receive(fd, client);
            if (good) good = send_answers(fd, client);
            if (!good) {
                close(fd);
                clients_.erase(fd);
            } else {
                watch(fd, !client.out.empty(), false);
            }
        }
    }
}

void Service::listen_for_clients(bool on) {
    epoll_event event{};
    event.events = on ? EPOLLIN : 0u;
    event.data.fd = listening_;
    epoll_ctl(epoll_, EPOLL_CTL_MOD, listening_, &event);
    accepts_ = on;
}

void Service::accept_client() {
    const int fd = accept4(listening_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        // A connection that cannot be accepted stays ready, so the thread would spin.
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) listen_for_clients(false);
        return;
    }
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    clients_[fd];
    watch(fd, false, true);
}

bool Service::receive(int fd, Client& client) {
    const std::size_t buffered = client.in.size();
    client.in.resize(buffered + receive_chunk);
    const ssize_t got = recv(fd, client.in.data() + buffered, receive_chunk, 0);
    client.in.resize(buffered + static_cast<std::size_t>(std::max<ssize_t>(0, got)));
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
    std::size_t consumed = 0;
    if (!client.greeted) {
        if (client.in.size() < sizeof key_) return true;
        if (std::memcmp(client.in.data(), key_.data(), sizeof key_) != 0) return false;
        client.greeted = true;
        consumed = sizeof key_;
        Answer greeting{};
        greeting.data = reinterpret_cast<const char*>(key_.data());
        greeting.request.operation = Request::greeting;
        greeting.bytes = sizeof key_;
        client.out.push_back(std::move(greeting));
    }
    for (; client.in.size() - consumed >= sizeof(Request); consumed += sizeof(Request)) {
        Answer next{};
        std::memcpy(&next.request, client.in.data() + consumed, sizeof(Request));
        const bool pointer = next.request.operation == Request::add_pointer ||
                             next.request.operation == Request::set_pointer;
        const bool is_read =
            next.request.operation >= Request::read && next.request.operation <= Request::updates;
        if (!(pointer && next.request.rank < shared_pointer_slots) &&
            !(is_read && next.request.rank < store_.ranks()))
            return false;
        prepare(next, client);
        client.out.push_back(std::move(next));
    }
    client.in.erase(client.in.begin(), client.in.begin() + static_cast<std::ptrdiff_t>(consumed));
    return true;
}

bool Service::in_ring(const Request& request) const {
    return request.ring_offset >=
           store_.head(request.rank).first_byte.load(std::memory_order_acquire);
}

// The number of requested bytes that are published and contiguous in the ring.
std::uint64_t Service::contiguous_bytes(const Request& request) const {
    const auto& head = store_.head(request.rank);
    const std::uint64_t tail = head.tail.load(std::memory_order_acquire);
    if (!tail) return 0;
    const Record& last = store_.record(request.rank, tail - 1);
    const std::uint64_t end = last.ring_offset +
                              (static_cast<RecordKind>(last.kind) == RecordKind::data
                                   ? last.length * last.count
                                   : 0),
                        ring = head.ring_bytes.load();
    if (request.ring_offset >= end) return 0;
    return std::min({request.amount, end - request.ring_offset, ring - request.ring_offset % ring});
}

std::vector<char> Service::pack_updates(std::vector<std::uint64_t>& reported) const {
    reported.resize(store_.ranks());
    Update update{progress(store_), 0};  // first, because it vouches for the records below
    std::vector<char> payload(sizeof update);
    for (std::uint32_t rank = 0; rank < store_.ranks(); ++rank) {
        const auto& head = store_.head(rank);
        const std::uint64_t tail = head.tail.load(std::memory_order_acquire);
        const std::uint64_t from =
            std::max(reported[rank], head.first_record.load(std::memory_order_acquire));
        const std::uint64_t end = std::min(tail, from + max_update_records);
        if (from >= end) continue;
        std::vector<Record> records;
        for (std::uint64_t k = from; k < end; ++k) records.push_back(store_.record(rank, k));
        // Records that were evicted meanwhile are left out; the file system has their data.
        std::atomic_thread_fence(std::memory_order_seq_cst);
        const std::uint64_t first =
            std::clamp(head.first_record.load(std::memory_order_acquire), from, end);
        const RankRecords header{rank, static_cast<std::uint32_t>(end - first), first};
        const auto* begin = reinterpret_cast<const char*>(&header);
        payload.insert(payload.end(), begin, begin + sizeof header);
        begin = reinterpret_cast<const char*>(records.data() + (first - from));
        payload.insert(payload.end(), begin, begin + header.records * sizeof(Record));
        reported[rank] = end;
        update.more |= end < tail;
    }
    std::memcpy(payload.data(), &update, sizeof update);
    return payload;
}

void Service::prepare(Answer& answer, Client& client) {
    const Request& request = answer.request;
    if (request.operation == Request::updates) {
        store_.advance_clock(request.ring_offset);
        if (request.amount) store_.request_drain();
        answer.buffer = pack_updates(client.reported);
        answer.data = answer.buffer.data();
        answer.head = answer.bytes = answer.buffer.size();
        return;
    }
    if (request.operation == Request::read || request.operation == Request::read_available) {
        const std::uint64_t available = in_ring(request) ? contiguous_bytes(request) : 0;
        answer.head = request.operation == Request::read_available || available == request.amount
                          ? available
                          : 0;
        if (!answer.head) return;
        answer.data = store_.data(request.rank, request.ring_offset);
        answer.bytes = answer.head;
        return;
    }
    auto& shared_pointer = store_.superblock().shared_pointers[request.rank];
    answer.head = request.operation == Request::set_pointer
                      ? shared_pointer.exchange(request.amount)
                      : shared_pointer.fetch_add(request.amount);
}

// Sends as much as the socket takes. False: the connection is broken.
bool Service::send_answers(int fd, Client& client) {
    std::size_t sent_now = 0;
    while (!client.out.empty() && sent_now < send_chunk) {
        Answer& next = client.out.front();
        const bool greeting = next.request.operation == Request::greeting,
                   has_data = !greeting && next.data;
        const std::uint64_t head = greeting ? 0 : sizeof next.head,
                            tail = has_data ? sizeof next.tail : 0;
        if (has_data && next.sent >= head + next.bytes && !next.tail_known) {
            std::atomic_thread_fence(std::memory_order_seq_cst);
            next.tail = !next.buffer.empty() || in_ring(next.request);
            next.tail_known = true;
        }
        iovec parts[2];
        int n = 0;
        if (next.sent < head)
            parts[n++] = {reinterpret_cast<char*>(&next.head) + next.sent, head - next.sent};
        if (next.bytes && next.sent < head + next.bytes) {
            const std::uint64_t from = next.sent > head ? next.sent - head : 0;
            parts[n++] = {const_cast<char*>(next.data) + from,
                          std::min<std::uint64_t>(next.bytes - from, send_chunk)};
        } else if (tail && next.tail_known) {
            const std::uint64_t from = next.sent - head - next.bytes;
            parts[n++] = {reinterpret_cast<char*>(&next.tail) + from, tail - from};
        }
        msghdr message{};
        message.msg_iov = parts;
        message.msg_iovlen = static_cast<std::size_t>(n);
        const ssize_t got = sendmsg(fd, &message, MSG_NOSIGNAL);
        if (got < 0) return errno == EAGAIN || errno == EINTR;
        next.sent += static_cast<std::uint64_t>(got);
        sent_now += static_cast<std::size_t>(got);
        if (next.sent == head + next.bytes + tail) client.out.pop_front();
    }
    return true;
}

}  // namespace assay::storage
