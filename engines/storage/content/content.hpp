// The content of a transfer: a function of writer, repetition and file offset, cheap enough to be
// set and checked in the timed part.
//
// The body of a buffer is stamped once (core/pattern.hpp), with a key of writer and repetition.
// Each transfer sets only the first word of every page (the page word), to a hash of its file
// offset: eight stores for 32 KiB. A reader checks the page words in the timed part, which detects
// stale, misplaced and missing data, and every byte on request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace assay::storage {

struct Mismatch {
    std::uint64_t offset;              // in the file, of the first wrong byte
    std::uint64_t expected, observed;  // the 8 bytes of the word that contains it
};

class Content {
public:
    Content(int writer, std::uint64_t signature);

    // Stamps all bytes but the page words. `buffer` is 8-byte aligned and `bytes` long.
    void fill(std::byte* buffer, std::size_t bytes) const;
    // Sets the page words of a transfer at `offset` of the file; check_pages() compares them.
    void stamp_pages(std::byte* buffer, std::size_t bytes, std::uint64_t offset) const;
    std::optional<Mismatch> check_pages(const std::byte* buffer, std::size_t bytes,
                                        std::uint64_t offset) const;
    // Compares every byte. Overwrites the page words.
    std::optional<Mismatch> check_bytes(std::byte* buffer, std::size_t bytes,
                                        std::uint64_t offset) const;

private:
    std::uint64_t page_word(std::uint64_t offset) const;
    std::uint64_t body_key_, page_key_;  // keys
};

}  // namespace assay::storage
