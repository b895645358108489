// Detects other network measurements by Unix sockets in the abstract namespace.
#include "network/concurrent_runs.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

namespace assay::network {
namespace {

constexpr int max_runs = 16;  // at once on one host; further ones are not counted

std::pair<sockaddr_un, socklen_t> address_of(int slot) {
    const std::string name = fmt::format("assay.network.{}", slot);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::ranges::copy(name, address.sun_path + 1);  // sun_path[0] is 0: abstract
    return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

}  // namespace

// Binds the first free name, and sends a datagram to the holder of each other name, so that it
// counts this measurement too.
ConcurrentRuns::ConcurrentRuns()
    : socket_(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    if (socket_ < 0) return;
    int own_slot = 0;
    for (; own_slot < max_runs; ++own_slot) {
        const auto [address, length] = address_of(own_slot);
        if (bind(socket_, reinterpret_cast<const sockaddr*>(&address), length) == 0) break;
    }
    for (int slot = 0; slot < max_runs; ++slot) {
        const auto [address, length] = address_of(slot);
        if (slot != own_slot &&
            sendto(socket_, "+", 1, 0, reinterpret_cast<const sockaddr*>(&address), length) == 1)
            ++count_;
    }
}

ConcurrentRuns::~ConcurrentRuns() {
    if (socket_ >= 0) close(socket_);
}

int ConcurrentRuns::count() {
    char byte = 0;
    while (socket_ >= 0 && count_ < max_runs && recv(socket_, &byte, 1, 0) >= 0) ++count_;
    return count_;
}

}  // namespace assay::network
