#include "storage/content/content.hpp"

#include <algorithm>
#include <cstring>

#include "core/pattern.hpp"

namespace assay::storage {
namespace {

constexpr std::size_t page = 4096;
constexpr int body_stream = 0,
              page_stream = 1;  // two independent keys

}  // namespace

Content::Content(int writer, std::uint64_t signature)
    : body_key_(stamp_key(writer, body_stream, signature)),
      page_key_(stamp_key(writer, page_stream, signature)) {}

// Differs for consecutive offsets too, since transfers may be shorter than a word.
std::uint64_t Content::page_word(std::uint64_t offset) const {
    return stamped_word(page_key_, 8 * offset);
}

void Content::fill(std::byte* buffer, std::size_t bytes) const { stamp(buffer, bytes, body_key_); }

void Content::stamp_pages(std::byte* buffer, std::size_t bytes, std::uint64_t offset) const {
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

std::optional<Mismatch> Content::check_bytes(std::byte* buffer, std::size_t bytes,
                                             std::uint64_t offset) const {
    const std::optional<Mismatch> page_mismatch = check_pages(buffer, bytes, offset);
    for (std::size_t buffer_offset = 0; buffer_offset < bytes; buffer_offset += page) {
        const std::uint64_t word = stamped_word(body_key_, buffer_offset);
        std::memcpy(buffer + buffer_offset, &word, std::min<std::size_t>(8, bytes - buffer_offset));
    }
    const auto buffer_offset = first_wrong_byte(buffer, bytes, body_key_);
    if (!buffer_offset || (page_mismatch && page_mismatch->offset < offset + *buffer_offset))
        return page_mismatch;
    const std::size_t word_offset = *buffer_offset / 8 * 8;
    const std::uint64_t expected = stamped_word(body_key_, word_offset);
    std::uint64_t observed = expected;
    std::memcpy(&observed, buffer + word_offset, std::min<std::size_t>(8, bytes - word_offset));
    return Mismatch{offset + *buffer_offset, expected, observed};
}

}  // namespace assay::storage
