// Writes and verifies messages of fragments.
#include "events/payload.hpp"

#define XXH_STATIC_LINKING_ONLY
#ifdef ASSAY_XXHASH_DISPATCH
#include <xxh_x86dispatch.h>  // chooses the widest instructions of this processor at run time
#else
#include <xxhash.h>
#endif

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/pattern.hpp"

namespace assay::events {
namespace {

constexpr std::uint32_t payload_magic = 0x31425645;  // "EVB1"
constexpr std::size_t max_wrong_bytes = 4;

// Bytes that are stamped and then hashed while they are in the first-level cache.
constexpr std::size_t cache_block = 4096;

std::size_t padded(std::size_t bytes) { return (bytes + 7) & ~std::size_t{7}; }

template <class Header>
std::uint64_t checksum_of(const Header& header) {
    return XXH3_64bits(&header, offsetof(Header, checksum));
}
std::uint64_t key_of(int source, std::uint64_t event) { return stamp_key(source, 0, event); }

// Stamps the content. Returns its checksum.
std::uint64_t stamp_and_hash(std::byte* content, std::size_t bytes, std::uint64_t key) {
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_64bits_reset_withSeed(&state, key);
    for (std::size_t begin = 0; begin < bytes; begin += cache_block) {
        const std::size_t part = std::min(cache_block, bytes - begin);
        stamp(content + begin, part, stamped_word(key, begin));
        XXH3_64bits_update(&state, content + begin, part);
    }
    return XXH3_64bits_digest(&state);
}

bool event_is_intact(const FragmentHeader& header, const std::byte* content, const Format& format,
                     int source, std::uint64_t event, std::uint32_t size) {
    if (header.checksum != checksum_of(header) || header.event != event || header.size != size ||
        header.source != static_cast<std::uint32_t>(source))
        return false;
    return !format.verify ||
           header.content == XXH3_64bits_withSeed(content, size, key_of(source, event));
}

// The first byte of the content that differs from the stamp; the event of the header if the content
// is intact.
WrongByte find_wrong_byte(const FragmentHeader& header, const std::byte* content, int source,
                          std::uint64_t event, std::uint32_t size) {
    const std::uint64_t key = key_of(source, event);
    if (const auto offset = first_wrong_byte(content, size, key)) {
        const std::size_t begin = *offset & ~std::size_t{7};
        std::uint64_t observed = 0;
        std::memcpy(&observed, content + begin, std::min<std::size_t>(8, size - begin));
        return {event, *offset, stamped_word(key, begin), observed};
    }
    return {event, 0, event, header.event};
}

}  // namespace

std::size_t Format::payload_bytes(int source, const EventGroup& group) const {
    std::size_t bytes = 0;
    for (std::uint32_t i = 0; i < group.events; ++i)
        bytes += sizes.fragment_bytes(source, group.first_event + i);
    return bytes;
}

std::size_t Format::message_bytes(int source, const EventGroup& group) const {
    std::size_t bytes = sizeof(MessageHeader);
    for (std::uint32_t i = 0; i < group.events; ++i)
        bytes +=
            sizeof(FragmentHeader) + padded(sizes.fragment_bytes(source, group.first_event + i));
    return bytes;
}

std::size_t Format::capacity(int source, std::uint32_t events) const {
    return sizeof(MessageHeader) +
           events * (sizeof(FragmentHeader) + padded(sizes.largest(source)));
}

std::size_t write_message(std::byte* out, const Format& format, int source,
                          const EventGroup& group) {
    std::byte* position = out + sizeof(MessageHeader);
    for (std::uint32_t i = 0; i < group.events; ++i) {
        const std::uint64_t event = group.first_event + i;
        const std::uint32_t size = format.sizes.fragment_bytes(source, event);
        std::byte* const content = position + sizeof(FragmentHeader);
        const std::uint64_t key = key_of(source, event);
        FragmentHeader header{event, static_cast<std::uint32_t>(source), size, 0, 0};
        if (format.verify) header.content = stamp_and_hash(content, size, key);
        else stamp(content, size, key);
        header.checksum = checksum_of(header);
        std::memcpy(position, &header, sizeof header);
        position = content + padded(size);
    }
    const auto bytes = static_cast<std::size_t>(position - out);
    MessageHeader header{payload_magic,
                         static_cast<std::uint32_t>(source),
                         group.number,
                         group.first_event,
                         group.events,
                         0,
                         bytes,
                         {format.run_id, 0},
                         0};
    header.checksum = checksum_of(header);
    std::memcpy(out, &header, sizeof header);
    return bytes;
}

MessageCheck verify_message(const std::byte* in, const Format& format, int source,
                            const EventGroup& group) {
    MessageCheck check;
    MessageHeader header;
    std::memcpy(&header, in, sizeof header);
    const bool header_valid = header.magic == payload_magic &&
                              header.checksum == checksum_of(header) &&
                              header.run_id[0] == format.run_id;
    if (header_valid &&
        (header.group != group.number || header.source != static_cast<std::uint32_t>(source))) {
        check.state = MessageCheck::State::unexpected;
        return check;
    }
    if (!header_valid || header.events != group.events || header.first_event != group.first_event) {
        check.state = MessageCheck::State::damaged;
        check.damaged.resize(group.events);
        std::iota(check.damaged.begin(), check.damaged.end(), 0);
        check.wrong_bytes.push_back({group.first_event, 0, group.number, header.group});
        return check;
    }
    const std::byte* position = in + sizeof header;
    for (std::uint32_t i = 0; i < group.events; ++i) {
        const std::uint64_t event = group.first_event + i;
        const std::uint32_t size = format.sizes.fragment_bytes(source, event);
        FragmentHeader fragment;
        std::memcpy(&fragment, position, sizeof fragment);
        const std::byte* const content = position + sizeof fragment;
        if (event_is_intact(fragment, content, format, source, event, size)) {
            check.payload += size;
        } else {
            check.state = MessageCheck::State::damaged;
            check.damaged.push_back(i);
            if (check.wrong_bytes.size() < max_wrong_bytes)
                check.wrong_bytes.push_back(
                    find_wrong_byte(fragment, content, source, event, size));
        }
        position = content + padded(size);
    }
    return check;
}

}  // namespace assay::events
