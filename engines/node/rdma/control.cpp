// The control connection of control.hpp. Its sockets are non-blocking, so that each wait is a
// poll() with a deadline.
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
#include <vector>

#include "core/identity.hpp"

namespace assay::rdma {
namespace {

constexpr std::size_t max_callers = 64;  // connections that are not authenticated yet
constexpr int caller_check_ms = 100;     // between checks of their deadlines

Nanoseconds deadline_in(double seconds) { return now() + static_cast<Nanoseconds>(seconds * 1e9); }

// Waits until the socket is readable (POLLIN) or writable (POLLOUT). Returns false at the deadline.
bool wait_for(int socket, short events, Nanoseconds deadline) {
    for (;;) {
        pollfd polled{socket, events, 0};
        const Nanoseconds remaining = std::max<Nanoseconds>(0, deadline - now());
        const int ready = poll(
            &polled, 1,
            static_cast<int>(std::min<Nanoseconds>((remaining + 999'999) / 1'000'000, 1 << 30)));
        if (ready > 0) return true;
        if (ready == 0 && now() >= deadline) return false;
        if (ready < 0 && errno != EINTR) throw Error(fmt::format("poll: {}", std::strerror(errno)));
    }
}

std::string to_big_endian(std::uint32_t value) {
    value = htonl(value);
    return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string format_address(const sockaddr_storage& address, socklen_t length) {
    char text[NI_MAXHOST] = "?";
    getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, text, sizeof text, nullptr, 0,
                NI_NUMERICHOST);
    const std::string name = text;
    return name.starts_with("::ffff:") ? name.substr(7) : name;  // an IPv4-mapped address
}

void disable_nagle(int socket) {
    const int enabled = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &enabled, sizeof enabled);
}

}  // namespace

std::uint64_t whole_number(const Json& value, std::uint64_t max) {
    if (value.is_number_unsigned() && value.get<std::uint64_t>() <= max)
        return value.get<std::uint64_t>();
    throw PeerError("the other side sent a number that is out of bounds",
                    "use the same version of Assay on both sides");
}

Connection::Connection(int socket, std::string peer, double limit)
    : socket_(socket), peer_(std::move(peer)), limit_(limit) {
    fcntl(socket_, F_SETFL, fcntl(socket_, F_GETFL) | O_NONBLOCK);
    disable_nagle(socket_);
}

Connection::~Connection() { close(socket_); }

void Connection::throw_disconnected() const {
    throw PeerError(fmt::format("{} has gone away", peer_),
                    "read the last lines that it printed on its host");
}

void Connection::throw_aborted(const Json& abort, const std::string& peer) {
    const auto reason = abort.find("what");
    throw PeerError(fmt::format("{} gave up: {}", peer,
                                reason != abort.end() && reason->is_string()
                                    ? printable(reason->get<std::string>())
                                    : "without a reason"));
}

void Connection::send(const Json& message) {
    const std::string body = message.dump();
    const std::string text = to_big_endian(control_magic) + to_big_endian(control_version) +
                             to_big_endian(static_cast<std::uint32_t>(body.size())) + body;
    const Nanoseconds deadline = deadline_in(limit_);
    for (std::size_t sent = 0; sent < text.size();) {
        const ssize_t n = ::send(socket_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
        if (n >= 0) {
            sent += static_cast<std::size_t>(n);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!wait_for(socket_, POLLOUT, deadline))
                throw PeerError(fmt::format("{} has not read for {:g} s", peer_, limit_),
                                "check that it still runs");
        } else if (errno != EINTR) {
            check();  // throws the reason if the other side has sent "abort"
            throw_disconnected();
        }
    }
}

void Connection::read(void* data, std::size_t bytes, Nanoseconds deadline) {
    auto* next = static_cast<char*>(data);
    while (bytes > 0) {
        const ssize_t n = recv(socket_, next, bytes, 0);
        if (n > 0) {
            next += n;
            bytes -= static_cast<std::size_t>(n);
        } else if (n == 0) {
            throw_disconnected();
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!wait_for(socket_, POLLIN, deadline))
                throw PeerError(fmt::format("no message from {} for {:g} s", peer_, limit_),
                                "check that it still runs and can be reached");
        } else if (errno != EINTR) {
            throw_disconnected();
        }
    }
}

std::uint32_t Connection::read_word(Nanoseconds deadline) {
    std::uint32_t value = 0;
    read(&value, sizeof value, deadline);
    return ntohl(value);
}

// Reads one message. Each word of the header is checked on arrival: another program that sends only
// a few bytes is recognised at once, not at the deadline.
Json Connection::read_message(Nanoseconds deadline) {
    if (read_word(deadline) != control_magic)
        throw ForeignError(
            fmt::format("{} does not speak the protocol of this measurement", peer_),
            "another program (perftest?) uses that port: choose another with --port on both sides");
    const std::uint32_t version = read_word(deadline);
    if (version != control_version)
        throw PeerError(
            fmt::format("{} uses version {} of this measurement's protocol, this side version {}",
                        peer_, version, control_version),
            "use the same version of Assay on both sides");
    const std::uint32_t length = read_word(deadline);
    if (length > max_message_bytes)
        throw PeerError(fmt::format("{} announces a message of {} bytes", peer_, length),
                        "use the same version of Assay on both sides");
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
        const Json message = early_message_ ? *std::exchange(early_message_, std::nullopt)
                                            : read_message(deadline_in(limit_));
        const std::string received = message["type"];
        if (received == type) return message;
        if (received == "abort") throw_aborted(message, peer_);
        if (received != "alive")
            throw PeerError(
                fmt::format("{} sent '{}' instead of '{}'", peer_, printable(received), type),
                "use the same version of Assay on both sides");
        const Json done = message.value("done", Json());
        if (on_alive_ && done.is_number()) on_alive_(done.get<double>());
    }
}

Json Connection::exchange(const Json& message) {
    send(message);
    return receive(message["type"].get<std::string>());
}

void Connection::send_alive(double done) { send({{"type", "alive"}, {"done", done}}); }

void Connection::abort(const std::string& what) noexcept {
    try {
        limit_ = std::min(limit_, 1.0);
        send({{"type", "abort"}, {"what", what}});
    } catch (const std::exception&) {  // the other side has ended already
    }
}

void Connection::check(double wait) {
    const Nanoseconds deadline = deadline_in(wait);
    while (!early_message_ && wait_for(socket_, POLLIN, deadline)) {
        Json message = read_message(deadline_in(limit_));
        if (message["type"] == "abort") throw_aborted(message, peer_);
        if (message["type"] != "alive") early_message_ = std::move(message);
    }
}

Listener::Listener(const node::Address& address, const std::optional<session::Token>& token)
    : socket_(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (token) gate_.emplace(*token, control_purpose, max_callers);
    const int enabled = 1;
    if (socket_ >= 0) setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &enabled, sizeof enabled);
    if (socket_ >= 0 && bind(socket_, address.get(), address.length) == 0 &&
        listen(socket_, 64) == 0) {
        fcntl(socket_, F_SETFL, fcntl(socket_, F_GETFL) | O_NONBLOCK);
        return;
    }
    const int error = errno;
    if (socket_ >= 0) close(socket_);
    throw Error(
        fmt::format("cannot listen on {}: {}", address.with_port_text(), std::strerror(error)),
        error == EADDRINUSE ? "end the program that listens there (ss -ltnp), or choose "
                              "another --port on both sides"
                            : "choose another --port on both sides");
}

Listener::~Listener() { close(socket_); }

std::optional<Listener::Incoming> Listener::accept(double limit) {
    const Nanoseconds deadline = deadline_in(limit);
    if (gate_) return admit(deadline);
    while (wait_for(socket_, POLLIN, deadline)) {
        sockaddr_storage address{};
        socklen_t length = sizeof address;
        const int connection =
            accept4(socket_, reinterpret_cast<sockaddr*>(&address), &length, SOCK_CLOEXEC);
        if (connection >= 0) return Incoming{connection, format_address(address, length)};
        if (errno != EINTR && errno != ECONNABORTED && errno != EAGAIN)
            throw Error(fmt::format("cannot accept a connection: {}", std::strerror(errno)));
    }
    return std::nullopt;
}

// Accepts connections until a caller proves that it knows the token. Reads from all callers at
// once, so that none delays another.
std::optional<Listener::Incoming> Listener::admit(Nanoseconds deadline) {
    for (; now() < deadline; gate_->expire(), report_refused()) {
        std::vector<pollfd> polled{{socket_, POLLIN, 0}};
        for (const auto& caller : gate_->callers()) polled.push_back({caller.fd(), POLLIN, 0});
        poll(polled.data(), polled.size(), caller_check_ms);
        for (std::size_t k = 1; k < polled.size(); ++k) {
            Incoming incoming{-1, {}};
            if (polled[k].revents != 0 &&
                gate_->advance(polled[k].fd, incoming.socket, incoming.address) ==
                    session::Caller::State::admitted)
                return incoming;
        }
        if (polled[0].revents == 0) continue;
        const int connection = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
        if (connection >= 0) gate_->add(connection, session::peer_address(connection));
        else if (errno == EMFILE || errno == ENFILE) poll(nullptr, 0, caller_check_ms);
    }
    return std::nullopt;
}

void Listener::report_refused() {
    if (reported_ || gate_->refused() == 0) return;
    reported_ = true;
    fmt::print(
        stderr,
        "note: refused: {} called and did not prove that it belongs to this run, and all such "
        "callers\n",
        gate_->first_refused());
}

void prove_token(int socket, const std::string& peer, const session::Token& token) {
    if (session::introduce(socket, token, control_purpose)) return;
    close(socket);
    throw Error(fmt::format("{} does not prove that it belongs to this run", peer),
                "give both sides the same --token; if another program uses that port, choose "
                "another --port on both sides");
}

int connect_to(const std::string& host, int port, double limit) {
    const addrinfo hints{.ai_flags = 0,
                         .ai_family = AF_UNSPEC,
                         .ai_socktype = SOCK_STREAM,
                         .ai_protocol = 0,
                         .ai_addrlen = 0,
                         .ai_addr = nullptr,
                         .ai_canonname = nullptr,
                         .ai_next = nullptr};
    addrinfo* addresses = nullptr;
    const int status = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &addresses);
    if (status != 0)
        throw Error(fmt::format("{}: {}", host, gai_strerror(status)), "check the name");
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(addresses, freeaddrinfo);
    const Nanoseconds deadline = deadline_in(limit);
    int error = ETIMEDOUT;
    for (const addrinfo* address = addresses; address != nullptr; address = address->ai_next) {
        const int connection =
            socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (connection < 0) continue;
        if (connect(connection, address->ai_addr, address->ai_addrlen) == 0) return connection;
        error = errno;
        if (error == EINPROGRESS) {
            socklen_t length = sizeof error;
            error = ETIMEDOUT;
            if (wait_for(connection, POLLOUT, deadline))
                getsockopt(connection, SOL_SOCKET, SO_ERROR, &error, &length);
            if (error == 0) return connection;
        }
        close(connection);
    }
    if (error == ECONNREFUSED)
        throw Error(fmt::format("no process listens on {}:{}", host, port),
                    "start the listening side there first: assay rdma -d DEVICE");
    throw Error(fmt::format("cannot reach {}:{}: {}", host, port, std::strerror(error)),
                "check that the host is up, and the port open in its firewall (--port)");
}

}  // namespace assay::rdma
