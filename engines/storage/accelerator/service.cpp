// The server side of the service (service.hpp): one thread with epoll and nonblocking sockets. A
// caller is a connection that is not authenticated yet, a client one that is.
#include "storage/accelerator/service.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "storage/store/helper_thread.hpp"

namespace assay::storage {
namespace {

constexpr std::size_t receive_chunk = 64u << 10;
// Bytes that are sent to a client before the next one is served.
constexpr std::size_t send_chunk = 4u << 20;
// Queued requests of a client; no more are received until one is answered.
constexpr std::size_t max_queued = 128;
constexpr std::size_t max_callers = 64;  // connections that are not authenticated yet
constexpr int accept_pause_ms = 50;   // pause of accept() while no descriptor or no place is left
constexpr int check_ms = 250;         // between checks of deadlines
constexpr int close_limit_ms = 5000;  // for a client to close its side of the connection

// At most a quarter of the descriptors that the program may have, since the process is the user's.
std::size_t client_limit() {
    rlimit files{};
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) return 64;
    return std::clamp<std::size_t>(files.rlim_cur / 4, 8, 512);
}

}  // namespace

Service::Service(Store& store, const session::Token& token)
    : store_(store),
      token_(token),
      max_clients_(client_limit()),
      gate_(token, service_purpose, std::min(max_callers, max_clients_)) {}

std::unique_ptr<Service> Service::start(Store& store, const session::Token& token,
                                        std::uint32_t host, std::string& error) {
    std::unique_ptr<Service> service(new Service(store, token));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = host;
    socklen_t length = sizeof address;
    service->listening_socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    service->epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
    service->wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    const bool is_listening =
        service->listening_socket_ >= 0 && service->epoll_fd_ >= 0 && service->wake_fd_ >= 0 &&
        bind(service->listening_socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) ==
            0 &&
        listen(service->listening_socket_, 1024) == 0 &&
        getsockname(service->listening_socket_, reinterpret_cast<sockaddr*>(&address), &length) ==
            0;
    if (is_listening) {
        service->port_ = ntohs(address.sin_port);
        service->watch(service->listening_socket_, EPOLLIN, true);
        service->watch(service->wake_fd_, EPOLLIN, true);
        service->running_ = start_helper_thread(service->thread_, run, service.get());
    }
    if (service->running_) return service;
    error = std::string("the service for other nodes cannot start: ") + std::strerror(errno);
    return nullptr;
}

Service::~Service() {
    stop_ = true;
    const std::uint64_t wake = 1;
    if (running_ && ::write(wake_fd_, &wake, sizeof wake) == sizeof wake)
        pthread_join(thread_, nullptr);
    for (auto& [fd, client] : clients_) close(fd);
    for (int fd : {listening_socket_, epoll_fd_, wake_fd_})
        if (fd >= 0) close(fd);
}

void* Service::run(void* self) {
    static_cast<Service*>(self)->serve();
    return nullptr;
}

void Service::watch(int fd, std::uint32_t events, bool add) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    epoll_ctl(epoll_fd_, add ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event);
}

void Service::serve() {
    epoll_event events[64];
    while (!stop_.load()) {
        const bool quiet = gate_.empty() && closing_clients_ == 0 && !paused_until_ms_;
        const int n = epoll_wait(epoll_fd_, events, 64,
                                 paused_until_ms_ ? accept_pause_ms
                                 : quiet          ? -1
                                                  : check_ms);
        for (int k = 0; k < n; ++k) handle_events(events[k].data.fd, events[k].events);
        if (paused_until_ms_ && session::monotonic_ms() >= paused_until_ms_)
            listen_for_callers(true);
        gate_.expire();
        close_expired();
        report_refused();
    }
}

void Service::handle_events(int fd, std::uint32_t events) {
    if (fd == wake_fd_) return;
    if (fd == listening_socket_) return accept_callers();
    if (gate_.has(fd)) {
        int socket = -1;
        std::string address;
        if (gate_.advance(fd, socket, address) == session::Caller::State::admitted) admit(socket);
        return;
    }
    const auto it = clients_.find(fd);
    if (it == clients_.end()) return;
    Client& client = it->second;
    bool is_valid = !(events & (EPOLLERR | EPOLLHUP));
    if (is_valid && events & EPOLLIN) is_valid = receive(fd, client);
    if (is_valid) is_valid = send_answers(fd, client);
    if (!is_valid) {
        closing_clients_ -= client.is_closing;
        close(fd);
        clients_.erase(it);
        return;
    }
    const bool full = client.queue.size() >= max_queued;
    watch(fd, (full ? 0u : EPOLLIN) | (client.answer || !client.queue.empty() ? EPOLLOUT : 0u),
          false);
}

void Service::listen_for_callers(bool on) {
    watch(listening_socket_, on ? EPOLLIN : 0u, false);
    paused_until_ms_ = on ? 0 : session::monotonic_ms() + accept_pause_ms;
}

void Service::accept_callers() {
    for (std::size_t k = 0; k < max_callers; ++k) {
        // Further callers wait in the listen queue until a connection is closed.
        if (clients_.size() >= max_clients_ + max_callers) return listen_for_callers(false);
        const int fd = accept4(listening_socket_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            // A connection that cannot be accepted stays ready, so the thread would spin.
            if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
                listen_for_callers(false);
            return;
        }
        if (gate_.add(fd, session::peer_address(fd))) watch(fd, EPOLLIN, true);
    }
}

void Service::admit(int fd) {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    clients_[fd].last_used_ms = session::monotonic_ms();
    watch(fd, EPOLLIN, false);
    if (clients_.size() > max_clients_) close_longest_idle();
}

void Service::close_longest_idle() {
    auto oldest = clients_.end();
    for (auto it = clients_.begin(); it != clients_.end(); ++it)
        if (it->second.idle() &&
            (oldest == clients_.end() || it->second.last_used_ms < oldest->second.last_used_ms))
            oldest = it;
    if (oldest == clients_.end()) return;
    oldest->second.is_closing = true;
    ++closing_clients_;
    oldest->second.last_used_ms = session::monotonic_ms();
    shutdown(oldest->first, SHUT_WR);
}

// Closes connections that were closed for sending and whose clients have not closed their side in
// time.
void Service::close_expired() {
    if (closing_clients_ == 0) return;
    const long long oldest = session::monotonic_ms() - close_limit_ms;
    for (auto it = clients_.begin(); it != clients_.end();) {
        if (it->second.is_closing && it->second.last_used_ms < oldest) {
            --closing_clients_;
            close(it->first);
            it = clients_.erase(it);
        } else {
            ++it;
        }
    }
}

void Service::report_refused() {
    if (reported_ || gate_.refused() == 0) return;
    reported_ = true;
    std::fprintf(stderr,
                 "assay io: %s called the I/O service on port %u and did not prove that it belongs "
                 "to this job; refused, as all such callers are\n",
                 gate_.first_refused().c_str(), unsigned{port_});
}

bool Service::receive(int fd, Client& client) {
    const std::size_t buffered = client.received.size();
    client.received.resize(buffered + receive_chunk);
    const ssize_t count = recv(fd, client.received.data() + buffered, receive_chunk, 0);
    client.received.resize(buffered + static_cast<std::size_t>(std::max<ssize_t>(0, count)));
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (client.is_closing) client.received.clear();
    else client.last_used_ms = session::monotonic_ms();
    return parse(client);
}

// Moves the complete requests from the received bytes to the queue. Returns false if one is
// invalid.
bool Service::parse(Client& client) {
    std::size_t consumed = 0;
    while (client.received.size() - consumed >= sizeof(Request) &&
           client.queue.size() < max_queued) {
        QueuedRequest next;
        std::memcpy(&next.request, client.received.data() + consumed, sizeof(Request));
        const Request& request = next.request;
        std::size_t bytes = sizeof(Request);
        switch (request.operation) {
            case Request::read:
            case Request::read_available:
                if (request.rank >= store_.ranks()) return false;
                break;
            case Request::updates:
                if (request.rank != store_.ranks()) return false;
                bytes += request.rank * sizeof(std::uint64_t);
                break;
            case Request::add_pointer:
            case Request::set_pointer:
                if (request.rank >= shared_pointer_slots) return false;
                break;
            default: return false;
        }
        if (client.received.size() - consumed < bytes) break;
        next.positions.resize((bytes - sizeof(Request)) / sizeof(std::uint64_t));
        if (!next.positions.empty())
            std::memcpy(next.positions.data(), client.received.data() + consumed + sizeof(Request),
                        bytes - sizeof(Request));
        consumed += bytes;
        client.queue.push_back(std::move(next));
    }
    client.received.erase(client.received.begin(),
                          client.received.begin() + static_cast<std::ptrdiff_t>(consumed));
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

std::vector<char> Service::pack_update(const std::vector<std::uint64_t>& positions) const {
    // The progress is read before the records: it states which records are published.
    Update update{progress(store_), 0};
    std::vector<char> payload(sizeof update);
    for (std::uint32_t rank = 0; rank < store_.ranks(); ++rank) {
        const auto& head = store_.head(rank);
        const std::uint64_t tail = head.tail.load(std::memory_order_acquire);
        const std::uint64_t from =
            std::max(positions[rank], head.first_record.load(std::memory_order_acquire));
        const std::uint64_t end = std::min(tail, from + max_update_records);
        if (from >= end) continue;
        // Another node may leave out older data for these, so they must survive a power failure.
        store_.persist(&head.tail, sizeof head.tail);
        std::vector<Record> records;
        for (std::uint64_t k = from; k < end; ++k) records.push_back(store_.record(rank, k));
        // Records that were evicted during the copy are left out; the file system has their data.
        std::atomic_thread_fence(std::memory_order_seq_cst);
        const std::uint64_t first =
            std::clamp(head.first_record.load(std::memory_order_acquire), from, end);
        const RankRecords header{rank, static_cast<std::uint32_t>(end - first), first};
        const auto* begin = reinterpret_cast<const char*>(&header);
        payload.insert(payload.end(), begin, begin + sizeof header);
        begin = reinterpret_cast<const char*>(records.data() + (first - from));
        payload.insert(payload.end(), begin, begin + header.records * sizeof(Record));
        update.has_more |= end < tail;
    }
    std::memcpy(payload.data(), &update, sizeof update);
    return payload;
}

std::unique_ptr<Service::Answer> Service::prepare(const QueuedRequest& queued_request) const {
    const Request& request = queued_request.request;
    auto answer = std::make_unique<Answer>();
    answer->request = request;
    if (request.operation == Request::updates) {
        store_.advance_clock(request.ring_offset);
        if (request.amount) store_.request_drain();
        if (request.amount == static_cast<std::uint64_t>(Push::sync)) store_.request_sync();
        answer->buffer = pack_update(queued_request.positions);
        answer->data = answer->buffer.data();
        answer->head = answer->bytes = answer->buffer.size();
    } else if (request.operation == Request::read || request.operation == Request::read_available) {
        const std::uint64_t available = in_ring(request) ? contiguous_bytes(request) : 0;
        answer->head = request.operation == Request::read_available || available == request.amount
                           ? available
                           : 0;
        if (!answer->head) return answer;
        answer->data = store_.data(request.rank, request.ring_offset);
        answer->bytes = answer->head;
    } else {
        auto& shared_pointer = store_.superblock().shared_pointers[request.rank];
        answer->head = request.operation == Request::set_pointer
                           ? shared_pointer.exchange(request.amount)
                           : shared_pointer.fetch_add(request.amount);
    }
    return answer;
}

// Sends as much as the socket takes. Returns false if the connection is broken.
bool Service::send_answers(int fd, Client& client) {
    for (std::size_t sent = 0; sent < send_chunk;) {
        if (!client.answer) {
            if (client.queue.empty() && !parse(client)) return false;
            if (client.queue.empty()) return true;
            client.answer = prepare(client.queue.front());
            client.queue.pop_front();
        }
        const std::size_t before = sent;
        if (!send_part(fd, *client.answer, sent)) return false;
        if (client.answer->sent == sizeof client.answer->head + client.answer->bytes +
                                       (client.answer->data ? sizeof client.answer->tail : 0))
            client.answer.reset();
        else if (sent == before) return true;  // the socket is full
    }
    return true;
}

// Sends the next part of an answer, and adds the number of sent bytes to `sent`. Returns false if
// the connection is broken.
bool Service::send_part(int fd, Answer& answer, std::size_t& sent) {
    const std::uint64_t head = sizeof answer.head, tail = answer.data ? sizeof answer.tail : 0;
    if (answer.data && answer.sent >= head + answer.bytes && !answer.tail_is_set) {
        std::atomic_thread_fence(std::memory_order_seq_cst);
        answer.tail = !answer.buffer.empty() || in_ring(answer.request);
        answer.tail_is_set = true;
    }
    iovec parts[2];
    int n = 0;
    if (answer.sent < head)
        parts[n++] = {reinterpret_cast<char*>(&answer.head) + answer.sent, head - answer.sent};
    if (answer.bytes && answer.sent < head + answer.bytes) {
        const std::uint64_t from = answer.sent > head ? answer.sent - head : 0;
        parts[n++] = {const_cast<char*>(answer.data) + from,
                      std::min<std::uint64_t>(answer.bytes - from, send_chunk)};
    } else if (tail && answer.tail_is_set) {
        const std::uint64_t from = answer.sent - head - answer.bytes;
        parts[n++] = {reinterpret_cast<char*>(&answer.tail) + from, tail - from};
    }
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = static_cast<std::size_t>(n);
    const ssize_t count = sendmsg(fd, &message, MSG_NOSIGNAL);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    answer.sent += static_cast<std::uint64_t>(count);
    sent += static_cast<std::size_t>(count);
    return true;
}

}  // namespace assay::storage
