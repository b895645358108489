// Tests of the kernel's counters of TCP connections, with real connections over loopback.
#include "network/connections.hpp"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>

using namespace assay::network;

namespace {

// A TCP connection over loopback. With `mapped` its sockets are IPv6 sockets with IPv4-mapped
// addresses.
class LoopbackConnection {
public:
    explicit LoopbackConnection(bool mapped) {
        const int listener = socket(mapped ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in6 ipv6_address{};
        ipv6_address.sin6_family = AF_INET6;
        inet_pton(AF_INET6, "::ffff:127.0.0.1", &ipv6_address.sin6_addr);
        sockaddr_in ipv4_address{};
        ipv4_address.sin_family = AF_INET;
        ipv4_address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        auto* address = mapped ? reinterpret_cast<sockaddr*>(&ipv6_address)
                               : reinterpret_cast<sockaddr*>(&ipv4_address);
        socklen_t length = mapped ? sizeof ipv6_address : sizeof ipv4_address;
        REQUIRE(bind(listener, address, length) == 0);
        REQUIRE(listen(listener, 1) == 0);
        REQUIRE(getsockname(listener, address, &length) == 0);
        client_ = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        REQUIRE(connect(client_, address, length) == 0);
        server_ = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        REQUIRE(server_ >= 0);
        close(listener);
    }
    ~LoopbackConnection() {
        close(client_);
        close(server_);
    }
    void transfer(std::size_t bytes) const {
        std::array<char, 4096> chunk{};
        for (std::size_t done = 0; done < bytes; done += chunk.size()) {
            REQUIRE(send(client_, chunk.data(), chunk.size(), 0) == chunk.size());
            REQUIRE(recv(server_, chunk.data(), chunk.size(), MSG_WAITALL) == chunk.size());
        }
    }

private:
    int client_ = -1, server_ = -1;
};

}  // namespace

TEST_CASE("segments with data are counted by peer, also of IPv4 over an IPv6 socket") {
    for (const bool mapped : {false, true}) {
        const LoopbackConnection connection(mapped);
        const Connections before = read_connections();
        connection.transfer(40 * 4096);
        const auto growth = growth_by_peer(before, read_connections());
        REQUIRE(growth.contains("127.0.0.1"));
        CHECK(growth.at("127.0.0.1").sent >= 40);
    }
}

TEST_CASE("the growth by peer has new connections whole, and no ended or idle ones") {
    const Connections before = {{1, {"a", 10, 2}}, {2, {"b", 5, 0}}, {3, {"c", 7, 1}}};
    const Connections after = {
        {1, {"a", 30, 5}}, {3, {"c", 7, 1}}, {4, {"a", 4, 1}}, {5, {"d", 6, 0}}};
    const auto growth = growth_by_peer(before, after);
    CHECK(growth.size() == 2);
    CHECK(growth.at("a").sent == 24);
    CHECK(growth.at("a").retransmitted == 4);
    CHECK(growth.at("d").sent == 6);
}
