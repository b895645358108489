// Addresses and interfaces of this machine, and UDP sockets (see socket.hpp).
#include "node/udp/socket.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include "core/error.hpp"
#include "core/topology.hpp"

namespace assay::node {
namespace {

namespace fs = std::filesystem;

struct FreeInfo {
    void operator()(addrinfo* p) const { freeaddrinfo(p); }
};
struct FreeAddresses {
    void operator()(ifaddrs* p) const { freeifaddrs(p); }
};

std::unique_ptr<ifaddrs, FreeAddresses> local_addresses() {
    ifaddrs* list = nullptr;
    getifaddrs(&list);
    return std::unique_ptr<ifaddrs, FreeAddresses>(list);
}

bool has_address(const ifaddrs* entry) {
    return entry->ifa_addr &&
           (entry->ifa_addr->sa_family == AF_INET || entry->ifa_addr->sa_family == AF_INET6);
}

Address address_of(const sockaddr* from) {
    Address address;
    address.length = from->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    std::memcpy(&address.storage, from, address.length);
    return address;
}

// The number in a file of one line; `fallback` if there is none.
int read_number(const std::string& path, int fallback) {
    const std::string text = read_line(path);
    char* end = nullptr;
    const long value = std::strtol(text.c_str(), &end, 10);
    return text.empty() || *end != '\0' ? fallback : static_cast<int>(value);
}

// The NUMA node of an interface's adapter; a bond or a VLAN has that of its first lower interface.
int numa_node_of(const std::string& interface, int depth = 0) {
    const std::string folder = sysfs("class/net/" + interface);
    if (const int node = read_number(folder + "/device/numa_node", -1); node >= 0) return node;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored))
        if (const std::string name = entry.path().filename();
            name.starts_with("lower_") && depth < 4)
            return numa_node_of(name.substr(6), depth + 1);
    return -1;
}

Interface describe_interface(const std::string& name) {
    return {name, static_cast<int>(if_nametoindex(name.c_str())),
            read_number(sysfs("class/net/" + name + "/mtu"), 0), numa_node_of(name)};
}

// The addresses of this machine without loopback: "eth0 10.77.0.1, eth1 10.78.0.1".
std::string reachable_addresses() {
    std::string addresses;
    const auto list = local_addresses();
    for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
        if (!has_address(entry)) continue;
        const Address address = address_of(entry->ifa_addr);
        if (address.is_loopback() || address.text().starts_with("fe80")) continue;
        addresses +=
            fmt::format("{}{} {}", addresses.empty() ? "" : ", ", entry->ifa_name, address.text());
    }
    return addresses.empty() ? "only loopback addresses" : addresses;
}

bool is_numeric(const std::string& host) {
    unsigned char buffer[16];
    return inet_pton(AF_INET, host.c_str(), buffer) == 1 || host.find(':') != std::string::npos;
}

}  // namespace

bool Address::is_loopback() const {
    if (is_ipv6())
        return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr);
    return ntohl(reinterpret_cast<const sockaddr_in&>(storage).sin_addr.s_addr) >> 24 == 127;
}

bool Address::same_host(const Address& other) const {
    if (storage.ss_family != other.storage.ss_family) return false;
    if (!is_ipv6())
        return reinterpret_cast<const sockaddr_in&>(storage).sin_addr.s_addr ==
               reinterpret_cast<const sockaddr_in&>(other.storage).sin_addr.s_addr;
    const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(storage);
    const auto& other_ipv6 = reinterpret_cast<const sockaddr_in6&>(other.storage);
    return std::memcmp(&ipv6.sin6_addr, &other_ipv6.sin6_addr, sizeof ipv6.sin6_addr) == 0;
}

Address Address::with_port(int port) const {
    Address copy = *this;
    if (is_ipv6())
        reinterpret_cast<sockaddr_in6&>(copy.storage).sin6_port =
            htons(static_cast<std::uint16_t>(port));
    else
        reinterpret_cast<sockaddr_in&>(copy.storage).sin_port =
            htons(static_cast<std::uint16_t>(port));
    return copy;
}

std::string Address::text() const {
    char name[NI_MAXHOST] = "?";
    getnameinfo(get(), length, name, sizeof name, nullptr, 0, NI_NUMERICHOST);
    return name;
}

std::string Address::with_port_text() const {
    const int port = ntohs(is_ipv6() ? reinterpret_cast<const sockaddr_in6&>(storage).sin6_port
                                     : reinterpret_cast<const sockaddr_in&>(storage).sin_port);
    return is_ipv6() ? fmt::format("[{}]:{}", text(), port) : fmt::format("{}:{}", text(), port);
}

std::vector<Address> resolve(const std::string& host, int port) {
    if (host.empty()) throw Error("no host given", "give --host, the receiver's name or address");
    addrinfo requested{};
    requested.ai_family = AF_UNSPEC;
    requested.ai_socktype = SOCK_DGRAM;
    addrinfo* list = nullptr;
    const int status = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &requested, &list);
    if (status != 0)
        throw Error(fmt::format("{}: the name does not resolve ({})", host, gai_strerror(status)),
                    "give a name that this machine knows, or an address");
    const std::unique_ptr<addrinfo, FreeInfo> owned(list);
    std::vector<Address> addresses;
    for (const addrinfo* info = list; info != nullptr; info = info->ai_next) {
        Address address;
        address.length = info->ai_addrlen;
        std::memcpy(&address.storage, info->ai_addr, info->ai_addrlen);
        addresses.push_back(address);
    }
    return addresses;
}

std::optional<Interface> interface_of(const Address& address) {
    const auto list = local_addresses();
    for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next)
        if (has_address(entry) && address.same_host(address_of(entry->ifa_addr)))
            return describe_interface(entry->ifa_name);
    if (!address.is_loopback()) return std::nullopt;
    for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next)
        if (has_address(entry) && address_of(entry->ifa_addr).is_loopback())
            return describe_interface(entry->ifa_name);
    return std::nullopt;  // loopback is down
}

std::optional<Address> address_of_interface(const std::string& name, int port) {
    const auto list = local_addresses();
    std::optional<Address> chosen;
    for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next)
        if (has_address(entry) && entry->ifa_name == name &&
            (!chosen || (chosen->is_ipv6() && entry->ifa_addr->sa_family == AF_INET)))
            chosen = address_of(entry->ifa_addr);
    return chosen ? std::optional(chosen->with_port(port)) : std::nullopt;
}

std::pair<Address, Interface> find_local(const std::string& host, int port) {
    if (const auto address = address_of_interface(host, port))
        return {*address, *interface_of(*address)};
    if (!host.empty() && if_nametoindex(host.c_str()) != 0)
        throw Error(fmt::format("the interface {} has no address", host),
                    fmt::format("ip address add ADDRESS/PREFIX dev {}", host));
    const std::vector<Address> addresses = resolve(host, port);
    // Addresses that others can reach come first: Debian resolves a machine's own name to
    // 127.0.1.1.
    for (const bool loopback : {false, true})
        for (const Address& address : addresses) {
            if (address.is_loopback() != loopback) continue;
            const auto interface = interface_of(address);
            if (!interface) continue;
            if (loopback && !is_numeric(host) && !host.starts_with("localhost"))
                throw Error(
                    fmt::format(
                        "{} is {} on this machine, a loopback address that no sender can reach",
                        host, address.text()),
                    "give the address of the interface to test: " + reachable_addresses());
            return {address, *interface};
        }
    const std::string resolved = addresses.front().text();
    throw Error(fmt::format("{}{} is not an address of this machine ({})", host,
                            resolved == host ? "" : " (" + resolved + ")", host_name()),
                "it has " + reachable_addresses() + "; the receiver runs on the tested machine");
}

void require_mtu(const std::string& subject, const std::string& interface, int mtu,
                 std::uint64_t size, int headers) {
    const auto needed = size + static_cast<std::uint64_t>(headers);
    if (mtu <= 0 || static_cast<std::uint64_t>(mtu) >= needed) return;
    throw Error(fmt::format("{}: the MTU of {} is {}, and a message of {} bytes needs {}", subject,
                            interface, mtu, size, needed),
                fmt::format("ip link set {} mtu {} there and on every hop; or choose --size "
                            "{}, or allow fragmentation with --fragments",
                            interface, std::max<std::uint64_t>(needed, 9000), mtu - headers));
}

UdpSocket::UdpSocket(const Address& like)
    : fd_(socket(like.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    if (fd_ < 0)
        throw Error(fmt::format("cannot create a socket: {}", std::strerror(errno)),
                    "raise the limit on open files (ulimit -n)");
}

UdpSocket::~UdpSocket() {
    if (fd_ >= 0) close(fd_);
}

void UdpSocket::bind(const Address& address) {
    if (::bind(fd_, address.get(), address.length) == 0) return;
    const int error = errno;
    throw Error(
        fmt::format("cannot receive on {}: {}", address.with_port_text(), std::strerror(error)),
        error == EADDRINUSE ? "is another receiver running there? else choose another --port (the "
                              "same for the sender)"
        : error == EACCES   ? "ports below 1024 need root; choose another --port"
                            : "see 'ip address'");
}

std::optional<int> UdpSocket::set(int level, int option, int value) {
    if (setsockopt(fd_, level, option, &value, sizeof value) == 0) return std::nullopt;
    return errno;
}

std::uint64_t UdpSocket::enlarge(bool receive, std::uint64_t requested) {
    const int value = static_cast<int>(requested);
    // Beyond net.core.rmem_max only with privilege (CAP_NET_ADMIN).
    if (set(SOL_SOCKET, receive ? SO_RCVBUFFORCE : SO_SNDBUFFORCE, value))
        set(SOL_SOCKET, receive ? SO_RCVBUF : SO_SNDBUF, value);
    int granted = 0;
    socklen_t length = sizeof granted;
    getsockopt(fd_, SOL_SOCKET, receive ? SO_RCVBUF : SO_SNDBUF, &granted, &length);
    return static_cast<std::uint64_t>(granted) /
           2;  // the kernel doubles it for its own bookkeeping
}

std::uint32_t UdpSocket::dropped() const {
    std::uint32_t memory[SK_MEMINFO_VARS] = {};
    socklen_t length = sizeof memory;
    if (getsockopt(fd_, SOL_SOCKET, SO_MEMINFO, memory, &length) != 0)
        return 0;  // before Linux 4.12
    return memory[SK_MEMINFO_DROPS];
}

void UdpSocket::send(const std::string& text, const Address& to) const {
    sendto(fd_, text.data(), text.size(), MSG_DONTWAIT, to.get(), to.length);
}

std::optional<UdpSocket::Datagram> UdpSocket::receive(double limit_s) const {
    pollfd polled{fd_, POLLIN, 0};
    if (poll(&polled, 1, static_cast<int>(limit_s * 1000)) <= 0) return std::nullopt;
    Datagram datagram;
    datagram.text.resize(65536);
    iovec part{datagram.text.data(), datagram.text.size()};
    alignas(cmsghdr) char control[256];
    msghdr message{
        &datagram.from.storage, sizeof datagram.from.storage, &part, 1, control, sizeof control, 0};
    const ssize_t n = recvmsg(fd_, &message, MSG_DONTWAIT);
    if (n < 0) {
        if (errno == EAGAIN || errno == EINTR) return std::nullopt;
        datagram.error = errno;
        return datagram;
    }
    datagram.text.resize(static_cast<std::size_t>(n));
    datagram.from.length = message.msg_namelen;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
            in_pktinfo info;
            std::memcpy(&info, CMSG_DATA(c), sizeof info);
            datagram.interface = info.ipi_ifindex;
        } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
            in6_pktinfo info;
            std::memcpy(&info, CMSG_DATA(c), sizeof info);
            datagram.interface = static_cast<int>(info.ipi6_ifindex);
        }
    }
    return datagram;
}

}  // namespace assay::node
