// The queue of frames to a peer (see frame.hpp).
#include "transport/direct/frame.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace assay::direct {

void Outbox::add(const Header& header, const void* data, std::size_t bytes, Ticket ticket) {
    insert({header, static_cast<const std::byte*>(data), bytes, ticket, end_, {}});
}

void Outbox::add_copy(const Header& header, const void* data, std::size_t bytes) {
    auto copy = std::make_unique_for_overwrite<std::byte[]>(bytes);
    if (bytes > 0) std::memcpy(copy.get(), data, bytes);
    const std::byte* const copied = copy.get();
    insert({header, copied, bytes, -1, end_, std::move(copy)});
}

// Messages of one tag keep their order. Messages of the transport itself, whose tags are negative,
// never overtake: a peer's last message comes after all others.
bool Outbox::may_overtake(const Entry& entry, const Entry& other) const {
    return other.begin >= committed_ && other.header.kind == FrameKind::message &&
           other.bytes > max_short && other.header.tag != entry.header.tag;
}

Outbox::Entry& Outbox::insert(Entry entry) {
    auto place = entries_.end();
    if (entry.header.kind == FrameKind::message && entry.header.tag >= 0 &&
        entry.bytes <= max_short)
        while (place != entries_.begin() && may_overtake(entry, *std::prev(place))) --place;
    const std::uint64_t length = entry.end() - entry.begin;
    if (place != entries_.end()) entry.begin = place->begin;
    for (auto later = place; later != entries_.end(); ++later) later->begin += length;
    end_ += length;
    return *entries_.insert(place, std::move(entry));
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
