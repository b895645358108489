// Sockets of the UDP measurements, and the addresses and interfaces of this machine. Problems with
// them are thrown as Error.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace assay::node {

struct Address {
    sockaddr_storage storage{};
    socklen_t length = 0;

    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
    bool is_ipv6() const { return storage.ss_family == AF_INET6; }
    bool is_loopback() const;
    bool same_host(const Address&) const;  // ignores the port
    Address with_port(int port) const;
    std::string text() const;            // without the port
    std::string with_port_text() const;  // "10.0.0.1:15300", "[fe80::1%eth0]:15300"
    int headers() const { return (is_ipv6() ? 40 : 20) + 8; }  // bytes of IP and UDP headers
};

// Throws Error when the name does not resolve.
std::vector<Address> resolve(const std::string& host, int port);

struct Interface {
    std::string name;
    int index = 0;
    int mtu = 0;    // 0: unknown
    int numa = -1;  // -1: unknown
};

// The address of this machine that `host` names (a host name, an address or an interface), and its
// interface. Throws Error if it is not an address of this machine, or other hosts cannot reach it.
std::pair<Address, Interface> find_local(const std::string& host, int port);
// The address of an interface of this machine, IPv4 before IPv6; none if it has none.
std::optional<Address> address_of_interface(const std::string& name, int port);
// None if the address is not one of this machine.
std::optional<Interface> interface_of(const Address&);

// Throws Error, with the command that fixes it, if messages of `size` do not fit.
void require_mtu(const std::string& subject, const std::string& interface, int mtu,
                 std::uint64_t size, int headers);

class UdpSocket {
public:
    UdpSocket() = default;
    explicit UdpSocket(const Address& like);  // of the same family
    UdpSocket(UdpSocket&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
    UdpSocket& operator=(UdpSocket&&) = delete;
    ~UdpSocket();

    int fd() const { return fd_; }
    void bind(const Address&);                                 // throws Error
    std::optional<int> set(int level, int option, int value);  // errno when refused
    // Enlarges a buffer to `requested` bytes or as far as allowed. Returns the bytes granted.
    std::uint64_t enlarge(bool receive, std::uint64_t requested);
    std::uint32_t dropped() const;  // messages dropped because the buffer was full

    // Sends a control message. Errors are ignored: lost messages are sent again.
    void send(const std::string& text, const Address& to) const;
    struct Datagram {
        std::string text;
        Address from;
        int interface = 0;  // index of the receiving interface; 0: unknown
        int error = 0;      // set instead: the network's error for an earlier datagram
    };
    std::optional<Datagram> receive(double limit_s) const;  // none in time, or if interrupted

private:
    int fd_ = -1;
};

}  // namespace assay::node
