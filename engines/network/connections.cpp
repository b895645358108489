// Reads the TCP connections of this host from the kernel by netlink (sock_diag(7)).
#include "network/connections.hpp"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace assay::network {
namespace {

constexpr std::uint32_t established_mask = 1
                                           << 1;  // TCP_ESTABLISHED, see the kernel's tcp_states.h
constexpr timeval answer_limit{.tv_sec = 2, .tv_usec = 0};
constexpr std::size_t datagram_bytes = 64 * 1024;  // a datagram of the kernel has at most 32 KiB

std::string address_text(std::uint8_t family, const __be32 (&address)[4]) {
    char text[INET6_ADDRSTRLEN] = {};
    const bool mapped = family == AF_INET6 && address[0] == 0 && address[1] == 0 &&
                        address[2] == htonl(0xffff);  // IPv4 on a socket of IPv6
    if (mapped) inet_ntop(AF_INET, &address[3], text, sizeof text);
    else inet_ntop(family, address, text, sizeof text);
    return text;
}

// Adds one connection, which the kernel describes by an inet_diag_msg and attributes.
void add_connection(const nlmsghdr* message, Connections& connections) {
    const auto* header = static_cast<const inet_diag_msg*>(NLMSG_DATA(message));
    int bytes_left =
        static_cast<int>(message->nlmsg_len) - static_cast<int>(NLMSG_LENGTH(sizeof *header));
    if (bytes_left < 0) return;
    const auto* attribute = reinterpret_cast<const rtattr*>(header + 1);
    for (; RTA_OK(attribute, bytes_left); attribute = RTA_NEXT(attribute, bytes_left)) {
        if (attribute->rta_type != INET_DIAG_INFO) continue;
        tcp_info info{};  // an older kernel sends a shorter one
        std::memcpy(&info, RTA_DATA(attribute), std::min(sizeof info, RTA_PAYLOAD(attribute)));
        const std::uint64_t cookie =
            header->id.idiag_cookie[0] | std::uint64_t{header->id.idiag_cookie[1]} << 32;
        connections[cookie] = {address_text(header->idiag_family, header->id.idiag_dst),
                               info.tcpi_data_segs_out, info.tcpi_total_retrans};
    }
}

// Requests all established connections of an address family. Returns false if that fails.
bool request_connections(int socket, std::uint8_t family) {
    struct {
        nlmsghdr header;
        inet_diag_req_v2 body;
    } message{};
    message.header.nlmsg_len = sizeof message;
    message.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    message.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    message.body.sdiag_family = family;
    message.body.sdiag_protocol = IPPROTO_TCP;
    message.body.idiag_ext = 1 << (INET_DIAG_INFO - 1);
    message.body.idiag_states = established_mask;
    return send(socket, &message, sizeof message, 0) == sizeof message;
}

// Reads the answer up to its end. Returns false if it is incomplete.
bool receive_connections(int socket, Connections& connections) {
    alignas(nlmsghdr) std::byte buffer[datagram_bytes];
    while (true) {
        const ssize_t length = recv(socket, buffer, sizeof buffer, 0);
        if (length <= 0) return false;
        auto bytes_left = static_cast<unsigned>(length);
        const auto* message = reinterpret_cast<const nlmsghdr*>(buffer);
        for (; NLMSG_OK(message, bytes_left); message = NLMSG_NEXT(message, bytes_left)) {
            if (message->nlmsg_type == NLMSG_DONE) return true;
            if (message->nlmsg_type == NLMSG_ERROR) return false;
            if (message->nlmsg_type == SOCK_DIAG_BY_FAMILY) add_connection(message, connections);
        }
    }
}

}  // namespace

Connections read_connections() {
    Connections connections;
    const int socket = ::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (socket < 0) return {};
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &answer_limit, sizeof answer_limit);
    bool complete = true;
    for (const std::uint8_t family : {AF_INET, AF_INET6})
        complete = complete && request_connections(socket, family) &&
                   receive_connections(socket, connections);
    close(socket);
    return complete ? connections : Connections{};
}

std::map<std::string, SegmentCounts> growth_by_peer(const Connections& before,
                                                    const Connections& after) {
    std::map<std::string, SegmentCounts> growth;
    for (const auto& [cookie, now] : after) {
        const auto earlier = before.find(cookie);
        const SegmentCounts start = earlier == before.end() ? SegmentCounts{} : earlier->second;
        if (now.sent <= start.sent) continue;
        SegmentCounts& peer = growth[now.peer];
        peer.peer = now.peer;
        peer.sent += now.sent - start.sent;
        peer.retransmitted += now.retransmitted - std::min(now.retransmitted, start.retransmitted);
    }
    return growth;
}

}  // namespace assay::network
