// Receives in SimGrid, in the order of arrival.
//
// MPI_Waitany takes a time that grows with the requests it is given, and an event builder expects a
// message from every rank at once: of N ranks all waits together would cost N cubed. So a few
// requests receive from MPI_ANY_SOURCE, and each message is matched here to its posted receive. A
// message without one is copied to the queue of unexpected messages.
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
    // `max_requests`: MPI requests that are posted at a time.
    explicit Arrivals(std::size_t max_requests) : max_requests_(max_requests) {}

    // Posts a receive. Returns its ticket if its message has arrived already.
    std::optional<Ticket> post_receive(void* data, std::size_t bytes, int peer, int tag,
                                       Ticket ticket) {
        const auto unexpected = unexpected_.find(key(peer, tag));
        if (unexpected == unexpected_.end()) {
            posted_[key(peer, tag)].push_back({data, bytes, ticket});
            ++waiting_receives_;
            return std::nullopt;
        }
        const std::vector<std::byte> message = std::move(unexpected->second.front());
        unexpected->second.erase(unexpected->second.begin());
        if (unexpected->second.empty()) unexpected_.erase(unexpected);
        deliver(data, bytes, message.data(), message.size());
        return ticket;
    }
    // A message of which `bytes` bytes are to be kept. Returns the ticket of its receive.
    std::optional<Ticket> on_message(const std::byte* message, std::size_t bytes, int peer,
                                     int tag) {
        const auto found = posted_.find(key(peer, tag));
        if (found == posted_.end()) {
            unexpected_[key(peer, tag)].emplace_back(message, message + bytes);
            return std::nullopt;
        }
        const Posted first = found->second.front();
        found->second.erase(found->second.begin());
        if (found->second.empty()) posted_.erase(found);
        --waiting_receives_;
        deliver(first.data, first.bytes, message, bytes);
        return first.ticket;
    }
    // MPI requests that should be posted: never more than posted receives, so that each completes.
    std::size_t needed_requests() const { return std::min(max_requests_, waiting_receives_); }

private:
    struct Posted {
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

    const std::size_t max_requests_;
    std::size_t waiting_receives_ = 0;
    std::unordered_map<std::uint64_t, std::vector<Posted>> posted_;
    std::unordered_map<std::uint64_t, std::vector<std::vector<std::byte>>> unexpected_;
};

}  // namespace assay
