#include "profile/trace/format.hpp"

#include <algorithm>
#include <array>

namespace assay::heap {
namespace {

constexpr std::uint8_t kind_bits = 31, timed = 32, unaligned = 64;
constexpr std::size_t longest = 10;  // bytes of a varint

// A column being filled: room for the worst case is there from the start.
class Column {
public:
    void clear(std::size_t values) {
        if (room_.size() < values * longest) room_.resize(values * longest);
        at_ = room_.data();
    }
    void put(std::uint64_t value) {
        while (value >= 128) {
            *at_++ = static_cast<std::uint8_t>(value | 128);
            value >>= 7;
        }
        *at_++ = static_cast<std::uint8_t>(value);
    }
    void put_byte(std::uint8_t byte) { *at_++ = byte; }
    void append_to(Bytes& to) const {
        put_varint(to, static_cast<std::size_t>(at_ - room_.data()));
        to.insert(to.end(), room_.data(), static_cast<const std::uint8_t*>(at_));
    }

private:
    Bytes room_;
    std::uint8_t* at_ = nullptr;
};

}  // namespace

void encode_events(std::span<const Event> events, std::uint64_t first, Bytes& to) {
    thread_local std::array<Column, 6> columns;
    for (Column& column : columns) column.clear(events.size());
    auto& [kinds, times, addresses, sizes, stacks, costs] = columns;
    std::uint64_t time = first >> time_shift, address = 0;
    for (const Event& event : events) {
        const Kind kind = kind_of(event);
        const std::uint64_t at = address_of(event);
        const bool odd = (at & ((1u << address_shift) - 1)) != 0;
        kinds.put_byte(static_cast<std::uint8_t>(static_cast<std::uint8_t>(kind) | (event.cost != 0 ? timed : 0) | (odd ? unaligned : 0)));
        const std::uint64_t t = event.time >> time_shift;
        times.put(t > time ? t - time : 0);
        time = std::max(time, t);
        const std::uint64_t place = odd ? at : at >> address_shift;
        addresses.put(zigzag(static_cast<std::int64_t>(place - address)));
        address = odd ? address : place;
        if (has_size(kind)) sizes.put(event.size);
        stacks.put(event.stack);
        if (event.cost != 0) costs.put(event.cost);
    }
    for (const Column& column : columns) column.append_to(to);
}

bool decode_events(std::span<const std::uint8_t> from, std::uint32_t count, std::uint64_t first, std::vector<Event>& into) {
    Reader all(from);
    const auto column = [&] { return Reader(all.take(all.varint())); };
    Reader kinds = column(), times = column(), addresses = column(), sizes = column(), stacks = column(), costs = column();
    into.clear();
    into.reserve(count);
    std::uint64_t time = first >> time_shift, address = 0;
    for (std::uint32_t k = 0; k < count; ++k) {
        const auto flags = kinds.take(1);
        if (flags.empty()) return false;
        const auto kind = static_cast<Kind>(flags[0] & kind_bits);
        time += times.varint();
        const auto delta = static_cast<std::uint64_t>(unzigzag(addresses.varint()));
        const std::uint64_t place = address + delta;
        const bool odd = (flags[0] & unaligned) != 0;
        if (!odd) address = place;
        const std::uint64_t at = odd ? place : place << address_shift;
        Event event{time << time_shift, (at & address_mask) | (static_cast<std::uint64_t>(kind) << kind_shift), 0, 0, 0};
        if (has_size(kind)) event.size = sizes.varint();
        event.stack = static_cast<std::uint32_t>(stacks.varint());
        if ((flags[0] & timed) != 0) event.cost = static_cast<std::uint32_t>(costs.varint());
        if (!times.ok() || !addresses.ok() || !sizes.ok() || !stacks.ok() || !costs.ok()) return false;
        into.push_back(event);
    }
    return all.ok();
}

}  // namespace assay::heap
