// Fills and checks the data of transfers (content.hpp).
#include "storage/content/content.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.hpp"
#include "core/pattern.hpp"

namespace assay::storage {
namespace {

constexpr std::size_t page = 4096;
// Numbers from which two independent keys are made.
constexpr int body_stream = 0, page_stream = 1;

constexpr std::array packet_names = {"random", "timestamp", "offset", "incompressible"};

bool is_pseudorandom(Packet packet) {
    return packet == Packet::random || packet == Packet::incompressible;
}

}  // namespace

Packet read_packet(const std::string& text) {
    for (std::size_t k = 0; k < packet_names.size(); ++k)
        if (text == packet_names[k] || text == std::string(1, packet_names[k][0]))
            return static_cast<Packet>(k);
    throw Error("--packet " + text + ": unknown type of data",
                "choose one of random, timestamp, offset, incompressible");
}

std::string name_of(Packet packet) { return packet_names[static_cast<std::size_t>(packet)]; }

Content::Content(int writer, std::uint64_t signature, Packet packet)
    : packet_(packet),
      body_key_(stamp_key(writer, body_stream, signature)),
      page_key_(stamp_key(writer, page_stream, signature)),
      identity_(static_cast<std::uint64_t>(writer) << 32 | (signature & 0xffffffff)) {}

// The expected first word of the page at a file offset. It also differs between consecutive
// offsets, since transfers may be shorter than a word.
std::uint64_t Content::page_word(std::uint64_t offset) const {
    return stamped_word(page_key_, 8 * offset);
}

std::uint64_t Content::body_key(std::uint64_t offset) const {
    return packet_ == Packet::incompressible ? stamp_key(0, body_stream, body_key_ ^ offset)
                                             : body_key_;
}

std::uint64_t Content::body_word(std::size_t buffer_offset, std::uint64_t offset) const {
    if (is_pseudorandom(packet_)) return stamped_word(body_key(offset), buffer_offset);
    if (buffer_offset / 8 % 2 == 0) return identity_;
    return packet_ == Packet::offset ? offset + buffer_offset : buffer_offset;
}

void Content::fill_body(std::byte* buffer, std::size_t bytes, std::uint64_t offset) const {
    if (is_pseudorandom(packet_)) {
        stamp(buffer, bytes, body_key(offset));
        return;
    }
    for (std::size_t buffer_offset = 0; buffer_offset < bytes; buffer_offset += 8) {
        const std::uint64_t word = body_word(buffer_offset, offset);
        std::memcpy(buffer + buffer_offset, &word, std::min<std::size_t>(8, bytes - buffer_offset));
    }
}

void Content::fill(std::byte* buffer, std::size_t bytes) const {
    if (!differs_between_transfers()) fill_body(buffer, bytes, 0);
}

void Content::stamp_transfer(std::byte* buffer, std::size_t bytes, std::uint64_t offset) const {
    if (differs_between_transfers()) fill_body(buffer, bytes, offset);
    for (std::size_t buffer_offset = 0; buffer_offset < bytes; buffer_offset += page) {
        const std::uint64_t word = page_word(offset + buffer_offset);
        std::memcpy(buffer + buffer_offset, &word, std::min<std::size_t>(8, bytes - buffer_offset));
    }
}

std::optional<Mismatch> Content::check_pages(const std::byte* buffer, std::size_t bytes,
                                             std::uint64_t offset) const {
    for (std::size_t buffer_offset = 0; buffer_offset < bytes; buffer_offset += page) {
        const std::uint64_t expected = page_word(offset + buffer_offset);
        std::uint64_t observed = expected;
        std::memcpy(&observed, buffer + buffer_offset,
                    std::min<std::size_t>(8, bytes - buffer_offset));
        if (observed != expected)
            return Mismatch{offset + buffer_offset +
                                static_cast<std::size_t>(__builtin_ctzll(observed ^ expected)) / 8,
                            expected, observed};
    }
    return std::nullopt;
}

std::optional<std::size_t> Content::find_wrong_byte(const std::byte* buffer, std::size_t bytes,
                                                    std::uint64_t offset) const {
    if (is_pseudorandom(packet_)) return first_wrong_byte(buffer, bytes, body_key(offset));
    for (std::size_t buffer_offset = 0; buffer_offset < bytes; buffer_offset += 8) {
        const std::uint64_t expected = body_word(buffer_offset, offset);
        std::uint64_t observed = expected;
        std::memcpy(&observed, buffer + buffer_offset,
                    std::min<std::size_t>(8, bytes - buffer_offset));
        if (observed != expected)
            return buffer_offset +
                   static_cast<std::size_t>(__builtin_ctzll(observed ^ expected)) / 8;
    }
    return std::nullopt;
}

std::optional<Mismatch> Content::check_bytes(std::byte* buffer, std::size_t bytes,
                                             std::uint64_t offset) const {
    const std::optional<Mismatch> page_mismatch = check_pages(buffer, bytes, offset);
    for (std::size_t buffer_offset = 0; buffer_offset < bytes; buffer_offset += page) {
        const std::uint64_t word = body_word(buffer_offset, offset);
        std::memcpy(buffer + buffer_offset, &word, std::min<std::size_t>(8, bytes - buffer_offset));
    }
    const auto buffer_offset = find_wrong_byte(buffer, bytes, offset);
    if (!buffer_offset || (page_mismatch && page_mismatch->offset < offset + *buffer_offset))
        return page_mismatch;
    const std::size_t word_offset = *buffer_offset / 8 * 8;
    const std::uint64_t expected = body_word(word_offset, offset);
    std::uint64_t observed = expected;
    std::memcpy(&observed, buffer + word_offset, std::min<std::size_t>(8, bytes - word_offset));
    return Mismatch{offset + *buffer_offset, expected, observed};
}

}  // namespace assay::storage
