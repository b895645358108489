// The queue of frames to a peer (see frame.hpp).
#include "transport/direct/frame.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace assay::direct {

void Outbox::add(const Header& header, const void* data, std::size_t bytes, Ticket ticket) {
    entries_.push_back({header, static_cast<const std::byte*>(data), bytes, ticket, end_, {}});
    end_ = entries_.back().end();
}

void Outbox::add_copy(const Header& header, const void* data, std::size_t bytes) {
    auto copy = std::make_unique_for_overwrite<std::byte[]>(bytes);
    if (bytes > 0) std::memcpy(copy.get(), data, bytes);
    add(header, copy.get(), bytes, -1);
    entries_.back().copy = std::move(copy);
}

std::size_t Outbox::gather(std::uint64_t from, std::size_t max_bytes, std::span<iovec> pieces,
                           int& count) const {
    count = 0;
    std::size_t total = 0;
    auto entry = std::ranges::upper_bound(entries_, from, {}, &Entry::begin);
    if (entry != entries_.begin()) --entry;
    const auto add = [&](const void* base, std::size_t length, std::uint64_t skip) {
        if (skip >= length || total == max_bytes || count == static_cast<int>(pieces.size()))
            return;
        const std::size_t used = std::min(length - skip, max_bytes - total);
        pieces[static_cast<std::size_t>(count++)] = {
            const_cast<char*>(static_cast<const char*>(base)) + skip, used};
        total += used;
    };
    for (; entry != entries_.end() && total < max_bytes && count < static_cast<int>(pieces.size());
         ++entry) {
        const std::uint64_t skip = from > entry->begin ? from - entry->begin : 0;
        add(&entry->header, sizeof entry->header, skip);
        add(entry->data, entry->bytes,
            skip > sizeof entry->header ? skip - sizeof entry->header : 0);
    }
    return total;
}

}  // namespace assay::direct
