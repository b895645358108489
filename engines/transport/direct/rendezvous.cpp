// Addresses, listening sockets, and the two lines that a rank exchanges with its launcher.
#include "transport/direct/rendezvous.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.hpp"
#include "core/record.hpp"
#include "core/topology.hpp"

namespace assay::direct {
namespace {

constexpr int message_version = 4;
constexpr int port_attempts = 64;                // until a number is free for both sockets
constexpr std::size_t max_line_bytes = 1 << 22;  // 16 Ki ranks
constexpr int max_waiting = 1024;                // connections that the kernel holds for accept()

int open_bound(const Address& address, int type) {
    const int fd = socket(address.storage.ss_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    if (bind(fd, address.data(), address.length) == 0) return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

bool is_link_local(const sockaddr* address) {
    return address->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

Address copy_address(const sockaddr* address) {
    Address copied;
    copied.length = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&copied.storage, address, copied.length);
    copied.set_port(0);
    return copied;
}

// Finds this host's address on its default route: the source address of packets to an address that
// is reserved for documentation (RFC 5737). Nothing is sent.
bool default_source(Address& source_address) {
    const Address outside = read_address("192.0.2.1", 9);
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    source_address.length = sizeof source_address.storage;
    const bool routed = fd >= 0 && connect(fd, outside.data(), outside.length) == 0 &&
                        getsockname(fd, reinterpret_cast<sockaddr*>(&source_address.storage),
                                    &source_address.length) == 0;
    if (fd >= 0) close(fd);
    source_address.set_port(0);
    return routed;
}

[[noreturn]] void throw_not_understood(const std::string& reason) {
    throw Error("the launcher's line of peers is not understood: " + reason,
                "start ranks through 'assay', of the same version");
}

}  // namespace

std::string version() { return fmt::format("{}/{}", ASSAY_VERSION, message_version); }

std::uint16_t Address::port() const {
    return ntohs(storage.ss_family == AF_INET
                     ? reinterpret_cast<const sockaddr_in*>(&storage)->sin_port
                     : reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
}

void Address::set_port(std::uint16_t port) {
    if (storage.ss_family == AF_INET)
        reinterpret_cast<sockaddr_in*>(&storage)->sin_port = htons(port);
    else reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = htons(port);
}

std::string Address::text() const {
    std::array<char, INET6_ADDRSTRLEN> text{};
    const void* source =
        storage.ss_family == AF_INET
            ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr)
            : &reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr;
    inet_ntop(storage.ss_family, source, text.data(), text.size());
    return text.data();
}

Address read_address(const std::string& text, std::uint16_t port) {
    Address address;
    auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
    if (inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        address.length = sizeof *v4;
    } else if (inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        address.length = sizeof *v6;
    } else {
        throw Error(fmt::format("'{}' is not an address", text), "give one such as 10.0.0.1");
    }
    address.set_port(port);
    return address;
}

Address own_address(const std::string& interface) {
    Address source_address;
    if (interface.empty() && default_source(source_address)) return source_address;
    source_address = {};
    ifaddrs* list = nullptr;
    if (getifaddrs(&list) != 0) list = nullptr;
    for (const ifaddrs* entry = list; entry; entry = entry->ifa_next) {
        const sockaddr* address = entry->ifa_addr;
        if (!address || (address->sa_family != AF_INET && address->sa_family != AF_INET6)) continue;
        const bool matches =
            interface.empty() ? !(entry->ifa_flags & IFF_LOOPBACK) : entry->ifa_name == interface;
        if (!matches || is_link_local(address)) continue;
        if (source_address.length == 0 ||
            (source_address.storage.ss_family != AF_INET && address->sa_family == AF_INET))
            source_address = copy_address(address);
    }
    if (list) freeifaddrs(list);
    if (source_address.length == 0)
        throw Error(interface.empty() ? fmt::format("{} has no address", host_name())
                                      : fmt::format("{} has no interface '{}' with an address",
                                                    host_name(), interface),
                    "see 'ip address'");
    return source_address;
}

Listener::Listener(Address address) : address_(address) {
    for (int attempt = 0; attempt < port_attempts; ++attempt)
        if (open()) return;
    throw Error(fmt::format("cannot listen on {}: {}", address_.text(), std::strerror(errno)),
                "check the address and the limit on open files (ulimit -n)");
}

bool Listener::open() {
    address_.set_port(0);
    connections_ = open_bound(address_, SOCK_STREAM);
    if (connections_ < 0) return false;
    sockaddr_storage bound{};
    socklen_t length = sizeof bound;
    if (getsockname(connections_, reinterpret_cast<sockaddr*>(&bound), &length) == 0 &&
        listen(connections_, max_waiting) == 0) {
        std::memcpy(&address_.storage, &bound, length);
        heartbeats_ = open_bound(address_, SOCK_DGRAM);
        if (heartbeats_ >= 0) return true;
    }
    close(std::exchange(connections_, -1));
    return false;
}

Listener::~Listener() {
    for (const int fd : {connections_, heartbeats_})
        if (fd >= 0) close(fd);
}

Listener::Listener(Listener&& other) noexcept
    : address_(other.address_),
      connections_(std::exchange(other.connections_, -1)),
      heartbeats_(std::exchange(other.heartbeats_, -1)) {}

std::string listening_line(int rank, const Address& address) {
    const Json line = {{"kind", "listening"},    {"rank", rank},
                       {"host", host_name()},    {"address", address.text()},
                       {"port", address.port()}, {"version", version()}};
    return line.dump() + "\n";
}

Membership read_membership(const std::string& line, int rank, int ranks) {
    const Json json = Json::parse(line, nullptr, false);
    if (!json.is_object() || json.value("kind", Json()) != "peers")
        throw_not_understood("it is no 'peers' line");
    const Json token = json.value("token", Json()), incarnation = json.value("incarnation", Json()),
               peers = json.value("peers", Json());
    Membership membership;
    membership.rank = rank;
    const auto read =
        token.is_string() ? session::token_from(token.get<std::string>()) : std::nullopt;
    if (!read) throw_not_understood("it has no token of 64 hexadecimal digits");
    membership.token = *read;
    if (!incarnation.is_number_unsigned() || incarnation.get<std::uint64_t>() > 1'000'000)
        throw_not_understood("it has no incarnation");
    membership.incarnation = incarnation.get<int>();
    if (!peers.is_array() || peers.size() != static_cast<std::size_t>(ranks))
        throw_not_understood(fmt::format("it does not list {} ranks", ranks));
    for (std::size_t number = 0; number < peers.size(); ++number) {
        const Json& entry = peers[number];
        if (!entry.is_object() || entry.value("rank", Json()) != number ||
            !entry.value("address", Json()).is_string() ||
            !entry.value("port", Json()).is_number_unsigned() ||
            entry["port"].get<std::uint64_t>() > 65535)
            throw_not_understood(
                fmt::format("its entry {} is not that of rank {}", number, number));
        Peer peer{entry["address"], entry["port"].get<std::uint16_t>()};
        if (peer.port != 0) read_address(peer.address, peer.port);
        membership.peers.push_back(std::move(peer));
    }
    return membership;
}

// Reads byte by byte, because the bytes after the line belong to later readers.
std::string read_line_within(int descriptor, Nanoseconds limit) {
    const Nanoseconds deadline = now() + limit;
    std::string line;
    while (line.size() < max_line_bytes) {
        const Nanoseconds remaining = deadline - now();
        pollfd polled{descriptor, POLLIN, 0};
        if (remaining <= 0 || ::poll(&polled, 1, static_cast<int>(remaining / 1'000'000) + 1) == 0)
            throw Error(fmt::format("the launcher named no peers within {:.0f} s", seconds(limit)),
                        "start ranks through 'assay'");
        char byte = 0;
        const ssize_t n = read(descriptor, &byte, 1);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            throw Error("standard input ended before the line of peers",
                        "start ranks through 'assay'");
        if (byte == '\n') return line;
        line += byte;
    }
    throw_not_understood("it is too long");
}

}  // namespace assay::direct
