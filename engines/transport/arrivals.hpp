// Matches messages with posted receives in SimGrid, in the order of arrival.
//
// The time of MPI_Waitany grows with the number of its requests, and an event builder has a receive
// posted for every rank: for N ranks all waits together would cost N cubed. So a few MPI requests
// receive from MPI_ANY_SOURCE, and each message is matched here with its posted receive. A message
// without a posted receive is copied to the queue of unexpected messages.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/transport.hpp"

namespace assay {

// Messages received in the order of arrival: those with tags from first_any_source on. They are of
// two classes, small messages and payloads, each with requests of its own.
inline constexpr int first_any_source = 16, first_payload = 32, end_any_source = 16384;  // tags
inline constexpr std::size_t small_requests = 4, payload_requests = 12;
inline constexpr bool is_small_message(int tag) { return tag < first_payload; }

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
    // A message has arrived, of which `bytes` are delivered. Returns the ticket of its receive;
    // none if no receive is posted.
    std::optional<Ticket> on_message(const std::byte* message, std::size_t bytes, int peer,
                                     int tag) {
        const auto entry = posted_.find(key(peer, tag));
        if (entry == posted_.end()) {
            unexpected_[key(peer, tag)].emplace_back(message, message + bytes);
            return std::nullopt;
        }
        const Posted first = entry->second.front();
        entry->second.erase(entry->second.begin());
        if (entry->second.empty()) posted_.erase(entry);
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
    static void deliver(void* to, std::size_t capacity, const std::byte* from, std::size_t bytes) {
        if (bytes > 0) std::memcpy(to, from, std::min(capacity, bytes));
    }

    const std::size_t max_requests_;
    std::size_t waiting_receives_ = 0;
    std::unordered_map<std::uint64_t, std::vector<Posted>> posted_;
    std::unordered_map<std::uint64_t, std::vector<std::vector<std::byte>>> unexpected_;
};

}  // namespace assay
