// Connects the ranks of a job and watches their connections (see mesh.hpp).
#include "transport/direct/mesh.hpp"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.hpp"

namespace assay::direct {
namespace {

constexpr std::string_view purpose = "assay transport 1";
constexpr std::array<char, 8> hello_magic{'a', 's', 's', 'a', 'y', '-', 't', '1'};
constexpr std::size_t max_callers = 64;  // connections that are not authenticated yet
constexpr Nanoseconds hello_answer_limit = 5'000'000'000;  // for a peer's proof and answer
constexpr Nanoseconds hello_limit = 5'000'000'000, expiry_period = 1'000'000'000;
constexpr Nanoseconds caller_patience = 3'000'000'000;  // less than that of a peer (session::Gate)
constexpr Nanoseconds rejoin_limit = 1'000'000'000;  // to reach a peer, for a rank that comes back
constexpr useconds_t retry_us = 50'000;
constexpr Nanoseconds waiting_period = 1'000'000'000;  // of reports at the start
constexpr std::size_t max_named_ranks = 8;

// The data of an epoll event: a peer's rank, or one of these kinds with a descriptor.
constexpr std::uint64_t listener_key = 1ULL << 40, caller_key = 2ULL << 40, hello_key = 3ULL << 40,
                        kind_mask = 0xffULL << 40;

template <std::size_t n>
void put_text(std::array<char, n>& field, const std::string& text) {
    field.fill(0);
    std::copy_n(text.begin(), std::min(text.size(), n - 1), field.begin());
}

template <std::size_t n>
std::string field_text(const std::array<char, n>& field) {
    return {field.begin(), std::find(field.begin(), field.end(), '\0')};
}

session::Proof sign_hello(const session::Token& token, const Hello& hello) {
    return session::sign(
        token, {reinterpret_cast<const char*>(&hello), sizeof hello - sizeof hello.proof});
}

void disable_nagle(int fd) {
    const int enabled = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &enabled, sizeof enabled);
}

// Waits for an event on a socket until the deadline.
bool wait_for_event(int fd, short events, Nanoseconds deadline) {
    const Nanoseconds remaining = deadline - now();
    pollfd polled{fd, events, 0};
    return remaining > 0 && ::poll(&polled, 1, static_cast<int>(remaining / 1'000'000) + 1) > 0;
}

std::string name_ranks(const std::vector<int>& ranks) {
    std::string names;
    for (std::size_t i = 0; i < std::min(ranks.size(), max_named_ranks); ++i)
        names += fmt::format("{}{}", i > 0 ? ", " : "rank ", ranks[i]);
    if (ranks.size() > max_named_ranks)
        names += fmt::format(" and {} more", ranks.size() - max_named_ranks);
    return names;
}

bool read_all(int fd, void* data, std::size_t bytes, Nanoseconds deadline) {
    auto* next = static_cast<char*>(data);
    while (bytes > 0) {
        const ssize_t n = recv(fd, next, bytes, MSG_DONTWAIT);
        if (n > 0) {
            next += n;
            bytes -= static_cast<std::size_t>(n);
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR) ||
                   !wait_for_event(fd, POLLIN, deadline)) {
            return false;
        }
    }
    return true;
}

}  // namespace

Mesh::Mesh(Listener listener, Membership self, MeshSettings settings, Observer& observer)
    : listener_(std::move(listener)),
      self_(std::move(self)),
      settings_(std::move(settings)),
      observer_(observer),
      gate_(self_.token, purpose, max_callers + index(self_.size())),
      liveness_(listener_.heartbeats(), self_, settings_.heartbeat_limit),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      links_(index(self_.size())) {
    if (epoll_ < 0) throw Error(fmt::format("cannot wait for peers: {}", std::strerror(errno)));
    watch(listener_.connections(), EPOLLIN, listener_key);
}

Mesh::~Mesh() {
    for (const Link& link : links_)
        if (link.socket >= 0) close(link.socket);
    for (const PendingHello& pending : pending_hellos_) close(pending.socket);
    close(epoll_);
}

void Mesh::watch(int fd, std::uint32_t events, std::uint64_t key) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = key;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
}

void Mesh::connect_all() {
    const Nanoseconds deadline = start_deadline_ = now() + settings_.start_limit;
    const bool is_returning = self_.incarnation > 0;
    for (int peer = 0; peer < size(); ++peer) {
        if (peer == rank() || (!is_returning && peer > rank())) continue;
        std::string reason;
        for (bool again = true; again;) {
            const Nanoseconds begin = now();
            reason = self_.peers[index(peer)].port == 0
                         ? "it is gone"
                         : connect_to(peer, is_returning ? rejoin_limit : deadline - begin);
            // A peer gives up a caller that is silent for some seconds, as one that was stopped is.
            again = !reason.empty() && !is_returning && now() - begin > caller_patience &&
                    now() < deadline;
        }
        if (reason.empty()) continue;
        if (!is_returning)
            throw Error(fmt::format("rank {} cannot reach rank {} at {} port {}: {}", rank(), peer,
                                    self_.peers[index(peer)].address, self_.peers[index(peer)].port,
                                    reason),
                        "check that the hosts reach each other on any port");
        observer_.on_lost(peer, reason, false);
    }
    if (!is_returning) await_ranks([this] { return unconnected_ranks(); }, [this] { poll(10); });
}

void Mesh::await_ranks(const std::function<std::vector<int>()>& missing_ranks,
                       const std::function<void()>& wait) {
    Nanoseconds next_report = now() + waiting_period;
    bool has_reported = false;
    for (;;) {
        const std::vector<int> missing = missing_ranks();
        const Nanoseconds time = now();
        if (rank() == 0 && (missing.empty() ? has_reported : time >= next_report)) {
            settings_.on_waiting(missing);
            next_report = time + waiting_period;
            has_reported = true;
        }
        if (missing.empty()) return;
        if (time > start_deadline_)
            throw Error(fmt::format("rank {} hears nothing from {} within {:.0f} s", rank(),
                                    name_ranks(missing), seconds(settings_.start_limit)),
                        "check that the hosts reach each other on any port, by TCP and by UDP, or "
                        "raise --timeout");
        wait();
    }
}

void Mesh::judge_silence() {
    liveness_.restart();
    judges_silence_ = true;
}

// The ranks that are not connected or have not been heard.
std::vector<int> Mesh::unconnected_ranks() const {
    std::vector<int> ranks;
    for (int peer = 0; peer < size(); ++peer)
        if (peer != rank() && links_[index(peer)].incarnation <= 0 &&
            !(is_connected(peer) && liveness_.has_been_heard(peer)))
            ranks.push_back(peer);
    return ranks;
}

// Opens a connection. Returns the socket, or -1 with errno set.
int Mesh::open_connection(const Address& address, Nanoseconds deadline) const {
    const int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    // Binds to this rank's own address, so that the connection uses the chosen interface.
    Address listen_address = listener_.address();
    listen_address.set_port(0);
    int error = 0;
    if (bind(fd, listen_address.data(), listen_address.length) != 0) {
        error = errno;
    } else if (connect(fd, address.data(), address.length) != 0) {
        error = errno;
        if (error == EINPROGRESS) {
            socklen_t length = sizeof error;
            if (!wait_for_event(fd, POLLOUT, deadline)) error = ETIMEDOUT;
            else getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
        }
    }
    if (error == 0) return fd;
    close(fd);
    errno = error;
    return -1;
}

// Connects to a peer. Returns the reason if it fails, else "".
std::string Mesh::connect_to(int peer, Nanoseconds limit) {
    const Nanoseconds deadline = now() + limit;
    const Address address =
        read_address(self_.peers[index(peer)].address, self_.peers[index(peer)].port);
    int fd = open_connection(address, deadline);
    // A link that has just come up has no route for a moment.
    while (fd < 0 && (errno == EHOSTUNREACH || errno == ENETUNREACH) && now() < deadline) {
        usleep(retry_us);
        fd = open_connection(address, deadline);
    }
    if (fd < 0) return std::strerror(errno);
    const auto fail = [fd](std::string reason) {
        close(fd);
        return reason;
    };
    disable_nagle(fd);
    // A host that was stopped connects, since its kernel accepts, and answers later.
    const Nanoseconds answer_deadline =
        self_.incarnation > 0 ? now() + hello_answer_limit : deadline;
    const auto refused = [&](std::string reason) {
        return fail(now() < answer_deadline ? std::move(reason) : "it does not answer");
    };
    // Whole milliseconds, rounded up: without an answer the deadline has passed afterwards.
    const Nanoseconds left = std::max<Nanoseconds>(0, answer_deadline - now());
    if (!session::introduce(fd, self_.token, purpose,
                            static_cast<int>((left + 999'999) / 1'000'000)))
        return refused("what answers there does not belong to this job");
    const Hello ours = make_hello(peer);
    Hello peer_hello;
    // A new socket takes 240 bytes at once.
    if (::send(fd, &ours, sizeof ours, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof ours) ||
        !read_all(fd, &peer_hello, sizeof peer_hello, answer_deadline))
        return refused(
            "it refused this rank: it is of another version, or knows a later incarnation");
    std::string fault = refusal_reason(peer_hello);
    if (fault.empty() && peer_hello.rank != static_cast<std::uint32_t>(peer))
        fault = fmt::format("it is rank {}", peer_hello.rank);
    if (!fault.empty()) return fail(fault);
    add_link(peer, fd, peer_hello, connection_key(ours, peer_hello), address);
    return "";
}

Hello Mesh::make_hello(int peer) const {
    Hello hello{};
    hello.magic = hello_magic;
    put_text(hello.version, version());
    put_text(hello.transport, settings_.transport);
    hello.size = static_cast<std::uint32_t>(size());
    hello.rank = static_cast<std::uint32_t>(rank());
    hello.to = static_cast<std::uint32_t>(peer);
    hello.incarnation = static_cast<std::uint32_t>(self_.incarnation);
    if (getrandom(hello.nonce.data(), hello.nonce.size(), 0) !=
        static_cast<ssize_t>(hello.nonce.size()))
        throw Error("the kernel has no random numbers", "see 'man 2 getrandom'");
    hello.port = listener_.address().port();
    hello.extra_length =
        static_cast<std::uint32_t>(std::min(settings_.extra.size(), hello.extra.size()));
    std::copy_n(settings_.extra.begin(), hello.extra_length, hello.extra.begin());
    hello.proof = sign_hello(self_.token, hello);
    return hello;
}

session::Proof Mesh::connection_key(const Hello& caller, const Hello& listener) const {
    std::string text = "assay transport key";
    for (const Hello* hello : {&caller, &listener})
        text.append(reinterpret_cast<const char*>(hello), sizeof *hello);
    return session::sign(self_.token, text);
}

// The reason why a peer is refused; empty if it is accepted.
std::string Mesh::refusal_reason(const Hello& hello) const {
    if (hello.magic != hello_magic || !session::equal(hello.proof, sign_hello(self_.token, hello)))
        return "its first message is not understood";
    if (field_text(hello.version) != version())
        return fmt::format("it is of version {}, this is {}", field_text(hello.version), version());
    if (field_text(hello.transport) != settings_.transport)
        return fmt::format("its transport is {}, this one's {}", field_text(hello.transport),
                           settings_.transport);
    if (hello.size != static_cast<std::uint32_t>(size()) || hello.rank >= hello.size ||
        hello.to != static_cast<std::uint32_t>(rank()) ||
        hello.rank == static_cast<std::uint32_t>(rank()) ||
        hello.extra_length > hello.extra.size() || hello.port > 65535 ||
        hello.incarnation > 1'000'000)
        return "it is not a rank of this job";
    return "";
}

void Mesh::poll(int milliseconds) {
    std::array<epoll_event, 64> events;
    const int count =
        epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), milliseconds);
    for (int i = 0; i < count; ++i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        const std::uint64_t kind = event.data.u64 & kind_mask;
        const int number = static_cast<int>(event.data.u64 & 0xffffffff);
        if (kind == listener_key) accept_callers();
        else if (kind == caller_key) authenticate_caller(number);
        else if (kind == hello_key) read_hello(number);
        else if (is_connected(number)) observer_.on_event(number, event.events);
    }
    if (judges_silence_ && liveness_.any_silent())
        for (const int peer : liveness_.silent_peers())
            if (is_connected(peer)) {
                drop(peer);
                observer_.on_lost(peer,
                                  fmt::format("nothing was heard from it for {:.0f} ms",
                                              seconds(liveness_.limit()) * 1e3),
                                  true);
            }
    if (!gate_.empty() || !pending_hellos_.empty()) expire();
}

void Mesh::accept_callers() {
    for (;;) {
        const int fd =
            accept4(listener_.connections(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) return;
        disable_nagle(fd);
        if (gate_.add(fd, session::peer_address(fd))) watch(fd, EPOLLIN, caller_key | index(fd));
    }
}

void Mesh::authenticate_caller(int fd) {
    int admitted = -1;
    std::string address;
    if (!gate_.has(fd) || gate_.advance(fd, admitted, address) != session::Caller::State::admitted)
        return;
    epoll_ctl(epoll_, EPOLL_CTL_DEL, admitted, nullptr);
    PendingHello pending{admitted, read_address(address, 0), now()};
    pending_hellos_.push_back(pending);
    watch(admitted, EPOLLIN, hello_key | index(admitted));
}

void Mesh::read_hello(int fd) {
    const auto position = std::ranges::find(pending_hellos_, fd, &PendingHello::socket);
    if (position == pending_hellos_.end()) return;
    const ssize_t n = recv(fd, reinterpret_cast<char*>(&position->hello) + position->received,
                           sizeof(Hello) - position->received, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n > 0) position->received += static_cast<std::size_t>(n);
    if (n > 0 && position->received < sizeof(Hello)) return;
    PendingHello pending = *position;
    pending_hellos_.erase(position);
    epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
    if (n > 0 && refusal_reason(pending.hello).empty()) {
        answer_hello(pending);
        return;
    }
    ++refused_;
    close(fd);
}

// Accepts a rank whose hello is complete, unless the connected or last process of this rank has the
// same incarnation or a higher one.
void Mesh::answer_hello(PendingHello& pending) {
    const int peer = static_cast<int>(pending.hello.rank);
    const int incarnation = static_cast<int>(pending.hello.incarnation);
    const Hello ours = make_hello(peer);
    if (incarnation <= links_[index(peer)].incarnation ||
        ::send(pending.socket, &ours, sizeof ours, MSG_NOSIGNAL) !=
            static_cast<ssize_t>(sizeof ours)) {
        ++refused_;
        close(pending.socket);
        return;
    }
    if (is_connected(peer)) {
        drop(peer);
        observer_.on_lost(peer, "a new process took its place", false);
    }
    add_link(peer, pending.socket, pending.hello, connection_key(pending.hello, ours),
             pending.address);
}

void Mesh::add_link(int peer, int socket, const Hello& peer_hello, const session::Proof& key,
                    Address address) {
    Link& link = links_[index(peer)];
    link.socket = socket;
    link.incarnation = static_cast<int>(peer_hello.incarnation);
    link.since = now();
    address.set_port(static_cast<std::uint16_t>(peer_hello.port));
    liveness_.watch(peer, address, link.incarnation);
    watch(socket, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, index(peer));
    observer_.on_connected(peer, socket, peer_hello, key);
}

void Mesh::drop(int peer) {
    Link& link = links_[index(peer)];
    if (link.socket < 0) return;
    liveness_.unwatch(peer);
    close(std::exchange(link.socket, -1));
}

void Mesh::expire() {
    const Nanoseconds time = now();
    if (time < next_expiry_) return;
    next_expiry_ = time + expiry_period;
    gate_.expire();
    std::erase_if(pending_hellos_, [&](const PendingHello& pending) {
        if (time - pending.since < hello_limit) return false;
        ++refused_;
        close(pending.socket);
        return true;
    });
}

}  // namespace assay::direct
