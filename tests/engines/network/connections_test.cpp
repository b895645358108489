// The kernel's counts of connections, on real ones over loopback.
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

// Two ends of a connection over loopback. With `mapped` they are IPv6 sockets that speak IPv4.
class Connected {
public:
    explicit Connected(bool mapped) {
        const int listener = socket(mapped ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in6 six{};
        six.sin6_family = AF_INET6;
        inet_pton(AF_INET6, "::ffff:127.0.0.1", &six.sin6_addr);
        sockaddr_in four{};
        four.sin_family = AF_INET;
        four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        auto* address =
            mapped ? reinterpret_cast<sockaddr*>(&six) : reinterpret_cast<sockaddr*>(&four);
        socklen_t length = mapped ? sizeof six : sizeof four;
        REQUIRE(bind(listener, address, length) == 0);
        REQUIRE(listen(listener, 1) == 0);
        REQUIRE(getsockname(listener, address, &length) == 0);
        client_ = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        REQUIRE(connect(client_, address, length) == 0);
        server_ = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        REQUIRE(server_ >= 0);
        close(listener);
    }
    ~Connected() {
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
        const Connected connected(mapped);
        const Connections before = read_connections();
        connected.transfer(40 * 4096);
        const auto growth = growth_by_peer(before, read_connections());
        REQUIRE(growth.contains("127.0.0.1"));
        CHECK(growth.at("127.0.0.1").sent >= 40);
    }
}

TEST_CASE("growth: what was new counts whole, what ended or rested does not, peers are summed") {
    const Connections before = {{1, {"a", 10, 2}}, {2, {"b", 5, 0}}, {3, {"c", 7, 1}}};
    const Connections after = {
        {1, {"a", 30, 5}}, {3, {"c", 7, 1}}, {4, {"a", 4, 1}}, {5, {"d", 6, 0}}};
    const auto growth = growth_by_peer(before, after);
    CHECK(growth.size() == 2);
    CHECK(growth.at("a").sent == 24);
    CHECK(growth.at("a").retransmitted == 4);
    CHECK(growth.at("d").sent == 6);
}
