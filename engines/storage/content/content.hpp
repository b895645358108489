// What a transfer holds: a function of writer, repetition and offset in the file, cheap enough to
// be set and looked at in the timed part.
//
// The body of a buffer is stamped once (core/pattern.hpp), with a key of writer and repetition. At
// each transfer only the first word of every page is set, to a hash of where in the file it lies:
// eight stores for 32 KiB. A reader looks at these words in the timed part, so that what is stale,
// misplaced or missing is always seen, and at every byte when it was asked to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace assay::storage {

struct Wrong {
    std::uint64_t offset;              // in the file, of the first wrong byte
    std::uint64_t expected, observed;  // the 8 bytes from the word that it lies in
};

class Content {
public:
    Content(int writer, std::uint64_t signature);

    // `buffer` is 8-byte aligned and `bytes` long; all but the page words.
    void fill(std::byte* buffer, std::size_t bytes) const;
    // The page words of a transfer at `offset`.
    void place(std::byte* buffer, std::size_t bytes, std::uint64_t offset) const;
    std::optional<Wrong> misplaced(const std::byte* buffer, std::size_t bytes,
                                   std::uint64_t offset) const;
    // Every byte. Overwrites the page words.
    std::optional<Wrong> wrong(std::byte* buffer, std::size_t bytes, std::uint64_t offset) const;

private:
    std::uint64_t page_word(std::uint64_t offset) const;
    std::uint64_t body_, place_;  // keys
};

}  // namespace assay::storage
