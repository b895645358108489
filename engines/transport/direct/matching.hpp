// Matches messages from one peer with posted receives: those of the same tag in the order of
// posting. A message without a posted receive is held, up to a limit of bytes. A stream that would
// exceed the limit waits, and with it the peer (back-pressure).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transport/transport.hpp"

namespace assay::direct {

class Matching {
public:
    // A message that is arriving: `received` of its `bytes` are at `target`. Ticket -1: it is held.
    struct Arriving {
        int tag = 0;
        std::byte* target = nullptr;
        std::size_t bytes = 0, received = 0;
        Ticket ticket = -1;
    };
    enum class Begin : std::uint8_t { accepted, full, too_long };

    explicit Matching(std::size_t max_unexpected) : max_unexpected_(max_unexpected) {}

    // Posts a receive. Returns true if a complete unexpected message was held: its bytes are in the
    // buffer now. The rest of a message that is still arriving goes into the buffer. A message may
    // be shorter than its receive. Throws Error if it is longer.
    bool post(Ticket ticket, void* data, std::size_t bytes, int tag);
    // A message begins. Full: there is no space for it until a receive is posted. Too long: longer
    // than its receive.
    Begin begin(int tag, std::size_t bytes);
    // The message that is arriving now; valid between begin() and end().
    Arriving& arriving() { return arriving_; }
    // The arriving message is complete. Returns the ticket of its receive; -1 if it is held.
    Ticket end();
    // Removes everything. Returns the tickets of all receives that have no complete message.
    std::vector<Ticket> clear();
    std::size_t unexpected_bytes() const { return unexpected_bytes_; }

private:
    struct Posted {
        Ticket ticket;
        std::byte* data;
        std::size_t bytes;
    };
    struct Unexpected {
        std::unique_ptr<std::byte[]> data;
        std::size_t bytes;
        bool complete;
    };
    struct Queue {
        std::deque<Posted> posted;
        std::deque<Unexpected> unexpected;
    };
    const std::size_t max_unexpected_;
    std::unordered_map<int, Queue> queues_;  // by tag
    Arriving arriving_;
    bool is_arriving_ = false;
    std::size_t unexpected_bytes_ = 0;
};

}  // namespace assay::direct
