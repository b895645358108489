#include "profile/trace/format.hpp"

#include <algorithm>
#include <array>

namespace assay::heap {
namespace {

constexpr std::uint8_t kind_bits = 15, timed = 16, foreign = 32, plain = 64;  // plain: an address
constexpr std::uint64_t number_mask = (std::uint64_t{1} << number_bits) - 1;
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

void encode_events(std::span<const Event> events, std::uint32_t thread, std::uint64_t first, Bytes& to) {
    thread_local std::array<Column, 6> columns;
    for (Column& column : columns) column.clear(2 * events.size());
    auto& [kinds, times, blocks, sizes, stacks, costs] = columns;
    std::uint64_t time = first >> time_shift, next = 0, number = 0;  // number: of the next new block
    const auto is_new = [](const Event& e) { return is_named(address_of(e)) && gives(kind_of(e), address_of(e), e.size); };
    for (const Event& event : events)
        if (is_new(event)) {
            next = number = address_of(event) & number_mask;
            break;
        }
    for (const Event& event : events) {
        const Kind kind = kind_of(event);
        const std::uint64_t at = address_of(event);
        std::uint8_t flags = static_cast<std::uint8_t>(kind) | (event.cost != 0 ? timed : 0);
        if (!is_named(at)) {
            flags |= plain;
            blocks.put(at);
        } else if (is_new(event)) {
            ++number;
        } else if (const auto owner = static_cast<std::uint32_t>((at & ~named) >> number_bits); owner == thread && (at & number_mask) < number) {
            blocks.put(number - (at & number_mask));
        } else {
            flags |= foreign;
            blocks.put(owner);
            blocks.put(at & number_mask);
        }
        kinds.put_byte(flags);
        const std::uint64_t t = event.time >> time_shift;
        times.put(t > time ? t - time : 0);
        time = std::max(time, t);
        if (has_size(kind)) sizes.put(event.size);
        stacks.put(event.stack);
        if (event.cost != 0) costs.put(event.cost);
    }
    put_varint(to, next);
    for (const Column& column : columns) column.append_to(to);
}

bool decode_events(std::span<const std::uint8_t> from, std::uint32_t count, std::uint32_t thread, std::uint64_t first,
                   std::vector<Event>& into) {
    Reader all(from);
    std::uint64_t time = first >> time_shift, number = all.varint();
    const auto column = [&] { return Reader(all.take(all.varint())); };
    Reader kinds = column(), times = column(), blocks = column(), sizes = column(), stacks = column(), costs = column();
    into.clear();
    into.reserve(count);
    for (std::uint32_t k = 0; k < count; ++k) {
        const auto flags = kinds.take(1);
        if (flags.empty()) return false;
        const auto kind = static_cast<Kind>(flags[0] & kind_bits);
        time += times.varint();
        Event event{time << time_shift, 0, has_size(kind) ? sizes.varint() : 0, static_cast<std::uint32_t>(stacks.varint()), 0};
        if ((flags[0] & timed) != 0) event.cost = static_cast<std::uint32_t>(costs.varint());
        std::uint64_t block = 0;
        if ((flags[0] & plain) != 0) {
            block = blocks.varint() & address_mask;
        } else if ((flags[0] & foreign) != 0) {
            const auto owner = static_cast<std::uint32_t>(blocks.varint());
            block = name_block(owner, blocks.varint() & number_mask);
        } else if (gives(kind, named, event.size)) {
            block = name_block(thread, number++ & number_mask);
        } else {
            block = name_block(thread, (number - blocks.varint()) & number_mask);
        }
        event.address = (block & address_mask) | static_cast<std::uint64_t>(kind) << kind_shift;
        if (!times.ok() || !blocks.ok() || !sizes.ok() || !stacks.ok() || !costs.ok()) return false;
        into.push_back(event);
    }
    return all.ok();
}

}  // namespace assay::heap
