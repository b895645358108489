// Receives in SimGrid, in the order of arrival.
//
// MPI_Waitany takes a time that grows with the requests it is given, and an event builder expects a
// message from every rank at once: of N ranks all waits together would cost N cubed. So a few
// requests take messages from anyone, and each is matched here to the receive that expects it. What
// comes before its receive is kept.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/transport.hpp"

namespace assay {

class Arrivals {
public:
    // `most`: requests that are posted at once.
    explicit Arrivals(std::size_t most) : most_(most) {}

    // A receive. Returns its ticket if the message is here already.
    std::optional<Ticket> expect(void* data, std::size_t bytes, int peer, int tag, Ticket ticket) {
        const auto early = early_.find(key(peer, tag));
        if (early == early_.end()) {
            expected_[key(peer, tag)].push_back({data, bytes, ticket});
            ++waiting_;
            return std::nullopt;
        }
        const std::vector<std::byte> message = std::move(early->second.front());
        early->second.erase(early->second.begin());
        if (early->second.empty()) early_.erase(early);
        deliver(data, bytes, message.data(), message.size());
        return ticket;
    }
    // A message of which `bytes` bytes are to be kept. Returns the ticket of its receive.
    std::optional<Ticket> arrive(const std::byte* message, std::size_t bytes, int peer, int tag) {
        const auto found = expected_.find(key(peer, tag));
        if (found == expected_.end()) {
            early_[key(peer, tag)].emplace_back(message, message + bytes);
            return std::nullopt;
        }
        const Expected first = found->second.front();
        found->second.erase(found->second.begin());
        if (found->second.empty()) expected_.erase(found);
        --waiting_;
        deliver(first.data, first.bytes, message, bytes);
        return first.ticket;
    }
    // Requests that should be posted: no more than receives that wait, so that none is left over.
    std::size_t wanted() const { return std::min(most_, waiting_); }

private:
    struct Expected {
        void* data;
        std::size_t bytes;
        Ticket ticket;
    };
    static std::uint64_t key(int peer, int tag) {
        return static_cast<std::uint64_t>(peer) << 32 | static_cast<std::uint32_t>(tag);
    }
    static void deliver(void* to, std::size_t room, const std::byte* from, std::size_t bytes) {
        if (bytes > 0) std::memcpy(to, from, std::min(room, bytes));
    }

    const std::size_t most_;
    std::size_t waiting_ = 0;
    std::unordered_map<std::uint64_t, std::vector<Expected>> expected_;
    std::unordered_map<std::uint64_t, std::vector<std::vector<std::byte>>> early_;
};

}  // namespace assay
