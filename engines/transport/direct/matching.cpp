#include "transport/direct/matching.hpp"

#include <fmt/format.h>

#include <cstring>

#include "core/error.hpp"

namespace assay::direct {
namespace {

[[noreturn]] void refuse(std::size_t sent, std::size_t expected, int tag) {
    throw Error(fmt::format("a message of {} bytes with tag {} arrived for a receive of {} bytes",
                            sent, tag, expected),
                "run the same version with the same parameters on all hosts");
}

}  // namespace

bool Matching::post(Ticket ticket, void* data, std::size_t bytes, int tag) {
    Queue& queue = queues_[tag];
    auto* buffer = static_cast<std::byte*>(data);
    if (queue.held.empty()) {
        queue.posted.push_back({ticket, buffer, bytes});
        return false;
    }
    if (queue.held.front().bytes > bytes) refuse(queue.held.front().bytes, bytes, tag);
    const Held held = std::move(queue.held.front());
    queue.held.pop_front();
    held_bytes_ -= held.bytes;
    const std::size_t received = held.complete ? held.bytes : arriving_.received;
    if (received > 0) std::memcpy(buffer, held.data.get(), received);
    if (held.complete) return true;
    arriving_.target = buffer;
    arriving_.ticket = ticket;
    return false;
}

Matching::Begin Matching::begin(int tag, std::size_t bytes) {
    Queue& queue = queues_[tag];
    if (!queue.posted.empty()) {
        const Posted posted = queue.posted.front();
        if (posted.bytes < bytes) return Begin::too_long;
        queue.posted.pop_front();
        arriving_ = {tag, posted.data, bytes, 0, posted.ticket};
    } else {
        if (held_bytes_ + bytes > max_held_) return Begin::full;
        held_bytes_ += bytes;
        Held& held = queue.held.emplace_back(
            Held{std::make_unique_for_overwrite<std::byte[]>(bytes), bytes, false});
        arriving_ = {tag, held.data.get(), bytes, 0, -1};
    }
    is_arriving_ = true;
    return Begin::accepted;
}

Ticket Matching::end() {
    is_arriving_ = false;
    if (arriving_.ticket < 0) queues_[arriving_.tag].held.back().complete = true;
    return arriving_.ticket;
}

std::vector<Ticket> Matching::clear() {
    std::vector<Ticket> tickets;
    for (const auto& [tag, queue] : queues_)
        for (const Posted& posted : queue.posted) tickets.push_back(posted.ticket);
    if (is_arriving_ && arriving_.ticket >= 0) tickets.push_back(arriving_.ticket);
    queues_.clear();
    is_arriving_ = false;
    held_bytes_ = 0;
    return tickets;
}

}  // namespace assay::direct
