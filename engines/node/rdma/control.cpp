#include "node/rdma/control.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

namespace assay::rdma {
namespace {

Nanoseconds deadline_in(double limit) { return now() + static_cast<Nanoseconds>(limit * 1e9); }

// Until the socket can be read (or written), or the deadline. False at the deadline.
bool await(int socket, short events, Nanoseconds deadline) {
    for (;;) {
        pollfd one{socket, events, 0};
        const Nanoseconds left = std::max<Nanoseconds>(0, deadline - now());
        const int ready =
            poll(&one, 1,
                 static_cast<int>(std::min<Nanoseconds>((left + 999'999) / 1'000'000, 1 << 30)));
        if (ready > 0) return true;
        if (ready == 0 && now() >= deadline) return false;
        if (ready < 0 && errno != EINTR) throw Error(fmt::format("poll: {}", std::strerror(errno)));
    }
}

std::string word(std::uint32_t value) {
    value = htonl(value);
    return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string numeric(const sockaddr_storage& address, socklen_t length) {
    char text[NI_MAXHOST] = "?";
    getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, text, sizeof text, nullptr, 0,
                NI_NUMERICHOST);
    const std::string name = text;
    return name.starts_with("::ffff:") ? name.substr(7) : name;  // IPv4 over a socket of both
}

void no_delay(int socket) {
    const int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

Connection::Connection(int socket, std::string peer, double limit)
    : socket_(socket), peer_(std::move(peer)), limit_(limit) {
    fcntl(socket_, F_SETFL, fcntl(socket_, F_GETFL) | O_NONBLOCK);
    no_delay(socket_);
}

Connection::~Connection() { close(socket_); }

void Connection::gone() const {
    throw PeerError(fmt::format("{} has gone away", peer_), "see what it said last, there");
}

void Connection::fail(const Json& abort, const std::string& peer) {
    throw PeerError(fmt::format("{} gave up: {}", peer, abort.value("what", "without a reason")));
}

void Connection::send(const Json& message) {
    const std::string body = message.dump();
    const std::string text = word(control_magic) + word(control_version) +
                             word(static_cast<std::uint32_t>(body.size())) + body;
    const Nanoseconds deadline = deadline_in(limit_);
    for (std::size_t at = 0; at < text.size();) {
        const ssize_t n = ::send(socket_, text.data() + at, text.size() - at, MSG_NOSIGNAL);
        if (n >= 0) {
            at += static_cast<std::size_t>(n);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!await(socket_, POLLOUT, deadline))
                throw PeerError(fmt::format("{} takes nothing for {:g} s", peer_, limit_),
                                "does it still run?");
        } else if (errno != EINTR) {
            check();  // what it said last, if it did
            gone();
        }
    }
}

void Connection::read(void* data, std::size_t bytes, Nanoseconds deadline) {
    auto* at = static_cast<char*>(data);
    while (bytes > 0) {
        const ssize_t n = recv(socket_, at, bytes, 0);
        if (n > 0) {
            at += n;
            bytes -= static_cast<std::size_t>(n);
        } else if (n == 0) {
            gone();
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!await(socket_, POLLIN, deadline))
                throw PeerError(fmt::format("no word from {} for {:g} s", peer_, limit_),
                                "does it still run, and can it be reached?");
        } else if (errno != EINTR) {
            gone();
        }
    }
}

std::uint32_t Connection::read_word(Nanoseconds deadline) {
    std::uint32_t value = 0;
    read(&value, sizeof value, deadline);
    return ntohl(value);
}

// Judged as it comes, so that one who says a few bytes of something else is not waited for.
Json Connection::next(Nanoseconds deadline) {
    if (read_word(deadline) != control_magic)
        throw ForeignError(
            fmt::format("{} speaks something else than this measurement", peer_),
            "is that port another program's (perftest?); give another with --port on both sides");
    const std::uint32_t version = read_word(deadline);
    if (version != control_version)
        throw PeerError(
            fmt::format(
                "{} speaks version {} of this measurement's protocol, and here is version {}",
                peer_, version, control_version),
            "use the same version of Assay on both sides");
    const std::uint32_t length = read_word(deadline);
    if (length > longest_message)
        throw PeerError(fmt::format("{} announces a message of {} bytes", peer_, length),
                        "at most 1 MiB makes sense");
    std::string body(length, '\0');
    read(body.data(), length, deadline);
    const Json message = Json::parse(body, nullptr, false);
    if (!message.is_object() || !message.contains("type") || !message["type"].is_string())
        throw PeerError(fmt::format("{} sent a message that cannot be read", peer_),
                        "use the same version of Assay on both sides");
    return message;
}

Json Connection::receive(std::string_view type) {
    for (;;) {
        const Json message =
            early_ ? *std::exchange(early_, std::nullopt) : next(deadline_in(limit_));
        const std::string said = message["type"];
        if (said == type) return message;
        if (said == "abort") fail(message, peer_);
        if (said != "alive")
            throw PeerError(fmt::format("{} said '{}' where '{}' was due", peer_, said, type),
                            "use the same version of Assay on both sides");
        if (heard_) heard_(message.value("done", 0.0));
    }
}

Json Connection::exchange(const Json& mine) {
    send(mine);
    return receive(mine["type"].get<std::string>());
}

void Connection::alive(double done) { send({{"type", "alive"}, {"done", done}}); }

void Connection::abort(const std::string& what) noexcept {
    try {
        limit_ = std::min(limit_, 1.0);
        send({{"type", "abort"}, {"what", what}});
    } catch (const std::exception&) {  // it has gone already
    }
}

void Connection::check(double wait) {
    const Nanoseconds deadline = deadline_in(wait);
    while (!early_ && await(socket_, POLLIN, deadline)) {
        Json message = next(deadline_in(limit_));
        if (message["type"] == "abort") fail(message, peer_);
        if (message["type"] != "alive") early_ = std::move(message);
    }
}

Listener::Listener(int port) : socket_(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1, off = 0;
    int status = 0;
    if (socket_ >= 0) {  // IPv4 as well
        sockaddr_in6 any{};
        any.sin6_family = AF_INET6;
        any.sin6_port = htons(static_cast<std::uint16_t>(port));
        setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        setsockopt(socket_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        status = bind(socket_, reinterpret_cast<const sockaddr*>(&any), sizeof any);
    }
    if (socket_ < 0 || (status != 0 && errno == EADDRNOTAVAIL)) {  // a host without IPv6
        if (socket_ >= 0) close(socket_);
        socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in any{};
        any.sin_family = AF_INET;
        any.sin_port = htons(static_cast<std::uint16_t>(port));
        setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        status = bind(socket_, reinterpret_cast<const sockaddr*>(&any), sizeof any);
    }
    if (status == 0) status = listen(socket_, 8);
    if (status == 0) return;
    const int why = errno;
    close(socket_);
    throw Error(fmt::format("cannot listen at port {}: {}", port, std::strerror(why)),
                why == EADDRINUSE
                    ? "end what listens there (ss -ltnp), or give another with --port on both sides"
                    : "give another with --port on both sides");
}

Listener::~Listener() { close(socket_); }

std::optional<Listener::Caller> Listener::accept(double limit) {
    const Nanoseconds deadline = deadline_in(limit);
    while (await(socket_, POLLIN, deadline)) {
        sockaddr_storage address{};
        socklen_t length = sizeof address;
        const int caller =
            accept4(socket_, reinterpret_cast<sockaddr*>(&address), &length, SOCK_CLOEXEC);
        if (caller >= 0) return Caller{caller, numeric(address, length)};
        if (errno != EINTR && errno != ECONNABORTED && errno != EAGAIN)
            throw Error(fmt::format("cannot accept a connection: {}", std::strerror(errno)));
    }
    return std::nullopt;
}

int connect_to(const std::string& host, int port, double limit) {
    const addrinfo wanted{.ai_flags = 0,
                          .ai_family = AF_UNSPEC,
                          .ai_socktype = SOCK_STREAM,
                          .ai_protocol = 0,
                          .ai_addrlen = 0,
                          .ai_addr = nullptr,
                          .ai_canonname = nullptr,
                          .ai_next = nullptr};
    addrinfo* found = nullptr;
    const int unknown = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found);
    if (unknown != 0)
        throw Error(fmt::format("{}: {}", host, gai_strerror(unknown)), "check the name");
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
    const Nanoseconds deadline = deadline_in(limit);
    int why = ETIMEDOUT;
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
        const int made = socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (made < 0) continue;
        if (connect(made, one->ai_addr, one->ai_addrlen) == 0) return made;
        why = errno;
        if (why == EINPROGRESS) {
            socklen_t length = sizeof why;
            why = ETIMEDOUT;
            if (await(made, POLLOUT, deadline))
                getsockopt(made, SOL_SOCKET, SO_ERROR, &why, &length);
            if (why == 0) return made;
        }
        close(made);
    }
    if (why == ECONNREFUSED)
        throw Error(fmt::format("nobody listens at {}:{}", host, port),
                    "start the listening side there first: assay rdma -d DEVICE");
    throw Error(fmt::format("cannot reach {}:{}: {}", host, port, std::strerror(why)),
                "is the host up, and the port open in its firewall (--port)?");
}

}  // namespace assay::rdma
