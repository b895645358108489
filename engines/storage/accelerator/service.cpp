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

namespace assay::storage {
namespace {

constexpr std::size_t hear_at_once = 64u << 10;
constexpr std::size_t send_at_once = 4u << 20;  // then the other callers have their turn

}  // namespace

std::unique_ptr<Service> Service::start(Store& store, const Key& key, std::string& wrong) {
    std::unique_ptr<Service> service(new Service(store, key));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_ANY);
    socklen_t length = sizeof at;
    service->listening_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    service->epoll_ = epoll_create1(EPOLL_CLOEXEC);
    service->wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    const bool good =
        service->listening_ >= 0 && service->epoll_ >= 0 && service->wake_ >= 0 &&
        bind(service->listening_, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0 &&
        listen(service->listening_, 1024) == 0 &&
        getsockname(service->listening_, reinterpret_cast<sockaddr*>(&at), &length) == 0;
    if (good) {
        service->port_ = ntohs(at.sin_port);
        service->watch(service->listening_, false, true);
        service->watch(service->wake_, false, true);
        service->running_ = pthread_create(&service->thread_, nullptr, run, service.get()) == 0;
    }
    if (service->running_) return service;
    wrong = std::string("no service for other nodes: ") + std::strerror(errno);
    return nullptr;
}

Service::~Service() {
    stop_ = true;
    const std::uint64_t one = 1;
    if (running_ && ::write(wake_, &one, sizeof one) == sizeof one) pthread_join(thread_, nullptr);
    for (auto& [fd, caller] : callers_) close(fd);
    for (int fd : {listening_, epoll_, wake_})
        if (fd >= 0) close(fd);
}

void* Service::run(void* self) {
    static_cast<Service*>(self)->serve();
    return nullptr;
}

void Service::watch(int fd, bool writing, bool fresh) {
    epoll_event event{};
    event.events = EPOLLIN | (writing ? EPOLLOUT : 0u);
    event.data.fd = fd;
    epoll_ctl(epoll_, fresh ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event);
}

void Service::serve() {
    epoll_event events[64];
    while (!stop_.load()) {
        const int n = epoll_wait(epoll_, events, 64, -1);
        for (int k = 0; k < n; ++k) {
            const int fd = events[k].data.fd;
            if (fd == wake_) continue;
            if (fd == listening_) {
                admit();
                continue;
            }
            auto& caller = callers_[fd];
            bool good = !(events[k].events & (EPOLLERR | EPOLLHUP));
            if (good && events[k].events & EPOLLIN) good = hear(fd, caller);
            if (good) good = answer(fd, caller);
            if (!good) {
                close(fd);
                callers_.erase(fd);
            } else {
                watch(fd, !caller.out.empty(), false);
            }
        }
    }
}

void Service::admit() {
    const int fd = accept4(listening_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    callers_[fd];
    watch(fd, false, true);
}

bool Service::hear(int fd, Caller& caller) {
    const std::size_t had = caller.in.size();
    caller.in.resize(had + hear_at_once);
    const ssize_t got = recv(fd, caller.in.data() + had, hear_at_once, 0);
    caller.in.resize(had + static_cast<std::size_t>(std::max<ssize_t>(0, got)));
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
    std::size_t used = 0;
    if (!caller.greeted) {
        if (caller.in.size() < sizeof key_) return true;
        if (std::memcmp(caller.in.data(), key_.data(), sizeof key_)) return false;
        caller.greeted = true;
        used = sizeof key_;
        Answer greeting{};
        greeting.data = reinterpret_cast<const char*>(key_.data());
        greeting.request.what = Request::greeting;
        greeting.bytes = sizeof key_;
        caller.out.push_back(std::move(greeting));
    }
    for (; caller.in.size() - used >= sizeof(Request); used += sizeof(Request)) {
        Answer next{};
        std::memcpy(&next.request, caller.in.data() + used, sizeof(Request));
        const bool pointer = next.request.what == Request::add || next.request.what == Request::set;
        const bool bytes =
            next.request.what >= Request::bytes && next.request.what <= Request::news;
        if (!(pointer && next.request.rank < pointer_slots) &&
            !(bytes && next.request.rank < store_.ranks()))
            return false;
        prepare(next, caller);
        caller.out.push_back(std::move(next));
    }
    caller.in.erase(caller.in.begin(), caller.in.begin() + static_cast<std::ptrdiff_t>(used));
    return true;
}

bool Service::there(const Request& request) const {
    return request.place >= store_.head(request.rank).first_byte.load(std::memory_order_acquire);
}

// How many of the bytes that are asked for have been published and lie one after the other.
std::uint64_t Service::in_one_piece(const Request& request) const {
    const auto& head = store_.head(request.rank);
    const std::uint64_t tail = head.tail.load(std::memory_order_acquire);
    if (!tail) return 0;
    const Record& last = store_.record(request.rank, tail - 1);
    const std::uint64_t end = last.place + (static_cast<Kind>(last.kind) == Kind::data
                                                ? last.length * last.count
                                                : 0),
                        ring = head.ring.load();
    if (request.place >= end) return 0;
    return std::min({request.amount, end - request.place, ring - request.place % ring});
}

std::vector<char> Service::news(std::vector<std::uint64_t>& told) const {
    told.resize(store_.ranks());
    News news{progress(store_), 0};  // first: what it promises is told below
    std::vector<char> text(sizeof news);
    for (std::uint32_t rank = 0; rank < store_.ranks(); ++rank) {
        const auto& head = store_.head(rank);
        const std::uint64_t tail = head.tail.load(std::memory_order_acquire);
        const std::uint64_t from =
            std::max(told[rank], head.first_record.load(std::memory_order_acquire));
        const std::uint64_t upto = std::min(tail, from + told_at_once);
        if (from >= upto) continue;
        std::vector<Record> records;
        for (std::uint64_t k = from; k < upto; ++k) records.push_back(store_.record(rank, k));
        // Those that have given way meanwhile are not told; the file system has what they were of.
        std::atomic_thread_fence(std::memory_order_seq_cst);
        const std::uint64_t first =
            std::clamp(head.first_record.load(std::memory_order_acquire), from, upto);
        const Entry entry{rank, static_cast<std::uint32_t>(upto - first), first};
        const auto* begin = reinterpret_cast<const char*>(&entry);
        text.insert(text.end(), begin, begin + sizeof entry);
        begin = reinterpret_cast<const char*>(records.data() + (first - from));
        text.insert(text.end(), begin, begin + entry.records * sizeof(Record));
        told[rank] = upto;
        news.more |= upto < tail;
    }
    std::memcpy(text.data(), &news, sizeof news);
    return text;
}

void Service::prepare(Answer& answer, Caller& caller) {
    const Request& request = answer.request;
    if (request.what == Request::news) {
        store_.no_earlier(request.place);
        if (request.amount) store_.hurry();
        answer.own = news(caller.told);
        answer.data = answer.own.data();
        answer.head = answer.bytes = answer.own.size();
        return;
    }
    if (request.what == Request::bytes || request.what == Request::some) {
        const std::uint64_t has = there(request) ? in_one_piece(request) : 0;
        answer.head = request.what == Request::some || has == request.amount ? has : 0;
        if (!answer.head) return;
        answer.data = store_.data(request.rank, request.place);
        answer.bytes = answer.head;
        return;
    }
    auto& word = store_.super().pointers[request.rank];
    answer.head = request.what == Request::set ? word.exchange(request.amount)
                                               : word.fetch_add(request.amount);
}

// Sends what the socket takes. False: the caller is gone.
bool Service::answer(int fd, Caller& caller) {
    std::size_t sent_now = 0;
    while (!caller.out.empty() && sent_now < send_at_once) {
        Answer& next = caller.out.front();
        const bool greeting = next.request.what == Request::greeting,
                   bytes = !greeting && next.data;
        const std::uint64_t head = greeting ? 0 : sizeof next.head,
                            tail = bytes ? sizeof next.tail : 0;
        if (bytes && next.sent >= head + next.bytes && !next.closed) {
            std::atomic_thread_fence(std::memory_order_seq_cst);
            next.tail = !next.own.empty() || there(next.request);
            next.closed = true;
        }
        iovec parts[2];
        int n = 0;
        if (next.sent < head)
            parts[n++] = {reinterpret_cast<char*>(&next.head) + next.sent, head - next.sent};
        if (next.bytes && next.sent < head + next.bytes) {
            const std::uint64_t from = next.sent > head ? next.sent - head : 0;
            parts[n++] = {const_cast<char*>(next.data) + from,
                          std::min<std::uint64_t>(next.bytes - from, send_at_once)};
        } else if (tail && next.closed) {
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
        if (next.sent == head + next.bytes + tail) caller.out.pop_front();
    }
    return true;
}

}  // namespace assay::storage
