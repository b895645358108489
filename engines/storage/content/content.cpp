#include "storage/content/content.hpp"

#include <algorithm>
#include <cstring>

#include "core/pattern.hpp"

namespace assay::storage {
namespace {

constexpr std::size_t page = 4096;
constexpr int as_body = 0,
              as_place = 1;  // in place of a destination: two keys that have nothing in common

}  // namespace

Content::Content(int writer, std::uint64_t signature)
    : body_(stamp_key(writer, as_body, signature)),
      place_(stamp_key(writer, as_place, signature)) {}

// Of consecutive offsets too: transfers may be shorter than a word.
std::uint64_t Content::page_word(std::uint64_t offset) const {
    return stamped_word(place_, 8 * offset);
}

void Content::fill(std::byte* buffer, std::size_t bytes) const { stamp(buffer, bytes, body_); }

void Content::place(std::byte* buffer, std::size_t bytes, std::uint64_t offset) const {
    for (std::size_t at = 0; at < bytes; at += page) {
        const std::uint64_t word = page_word(offset + at);
        std::memcpy(buffer + at, &word, std::min<std::size_t>(8, bytes - at));
    }
}

std::optional<Wrong> Content::misplaced(const std::byte* buffer, std::size_t bytes,
                                        std::uint64_t offset) const {
    for (std::size_t at = 0; at < bytes; at += page) {
        const std::uint64_t expected = page_word(offset + at);
        std::uint64_t observed = expected;
        std::memcpy(&observed, buffer + at, std::min<std::size_t>(8, bytes - at));
        if (observed != expected)
            return Wrong{
                offset + at + static_cast<std::size_t>(__builtin_ctzll(observed ^ expected)) / 8,
                expected, observed};
    }
    return std::nullopt;
}

std::optional<Wrong> Content::wrong(std::byte* buffer, std::size_t bytes,
                                    std::uint64_t offset) const {
    const std::optional<Wrong> page_word_wrong = misplaced(buffer, bytes, offset);
    for (std::size_t at = 0; at < bytes; at += page) {
        const std::uint64_t word = stamped_word(body_, at);
        std::memcpy(buffer + at, &word, std::min<std::size_t>(8, bytes - at));
    }
    const auto at = first_wrong_byte(buffer, bytes, body_);
    if (!at || (page_word_wrong && page_word_wrong->offset < offset + *at)) return page_word_wrong;
    const std::size_t word_at = *at / 8 * 8;
    const std::uint64_t expected = stamped_word(body_, word_at);
    std::uint64_t observed = expected;
    std::memcpy(&observed, buffer + word_at, std::min<std::size_t>(8, bytes - word_at));
    return Wrong{offset + *at, expected, observed};
}

}  // namespace assay::storage
