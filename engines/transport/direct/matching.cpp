// Matches messages with posted receives (see matching.hpp).
#include "transport/direct/matching.hpp"

#include <fmt/format.h>

#include <cstring>

#include "core/error.hpp"

namespace assay::direct {
namespace {

[[noreturn]] void throw_truncated(std::size_t sent, std::size_t expected, int tag) {
    throw Error(fmt::format("a message of {} bytes with tag {} arrived for a receive of {} bytes",
                            sent, tag, expected),
                "run the same version with the same parameters on all hosts");
}

}  // namespace

bool Matching::post(Ticket ticket, void* data, std::size_t bytes, int tag) {
    Queue& queue = queues_[tag];
    auto* buffer = static_cast<std::byte*>(data);
    if (queue.unexpected.empty()) {
        queue.posted.push_back({ticket, buffer, bytes});
        return false;
    }
    if (queue.unexpected.front().bytes > bytes)
        throw_truncated(queue.unexpected.front().bytes, bytes, tag);
    const Unexpected unexpected = std::move(queue.unexpected.front());
    queue.unexpected.pop_front();
    unexpected_bytes_ -= unexpected.bytes;
    const std::size_t received = unexpected.complete ? unexpected.bytes : arriving_.received;
    if (received > 0) std::memcpy(buffer, unexpected.data.get(), received);
    if (unexpected.complete) return true;
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
        if (unexpected_bytes_ + bytes > max_unexpected_) return Begin::full;
        unexpected_bytes_ += bytes;
        Unexpected& unexpected = queue.unexpected.emplace_back(
            Unexpected{std::make_unique_for_overwrite<std::byte[]>(bytes), bytes, false});
        arriving_ = {tag, unexpected.data.get(), bytes, 0, -1};
    }
    is_arriving_ = true;
    return Begin::accepted;
}

Ticket Matching::end() {
    is_arriving_ = false;
    if (arriving_.ticket < 0) queues_[arriving_.tag].unexpected.back().complete = true;
    return arriving_.ticket;
}

std::vector<Ticket> Matching::clear() {
    std::vector<Ticket> tickets;
    for (const auto& [tag, queue] : queues_)
        for (const Posted& posted : queue.posted) tickets.push_back(posted.ticket);
    if (is_arriving_ && arriving_.ticket >= 0) tickets.push_back(arriving_.ticket);
    queues_.clear();
    is_arriving_ = false;
    unexpected_bytes_ = 0;
    return tickets;
}

}  // namespace assay::direct
