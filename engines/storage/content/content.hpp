// The data of a transfer: a function of writer, repetition and file offset. It is cheap enough to
// be set and checked while transfers are timed.
//
// The body of a buffer is filled once (core/pattern.hpp), with a key of writer and repetition.
// Each transfer sets only the first word of every page (the page word), to a hash of its file
// offset: eight stores for 32 KiB. A reader checks the page words in the timed part, which detects
// stale, misplaced and missing data, and every byte on request.
//
// IOR's types of data differ in the body only. Two of them fill the body in every transfer, which
// takes time within the timed part, as it does in IOR.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace assay::storage {

struct Mismatch {
    std::uint64_t offset;              // in the file, of the first wrong byte
    std::uint64_t expected, observed;  // the 8 bytes of the word that contains it
};

// The kinds of data of a body, with IOR's names. The signature is the seed of the data.
enum class Packet {
    random,          // pseudorandom, the same in every transfer of a writer
    timestamp,       // writer and signature, then the word's offset in the transfer
    offset,          // writer and signature, then the word's offset in the file
    incompressible,  // pseudorandom, different in every transfer
};

// The kind with this name, IOR's or its first letter. Throws Error for other texts.
Packet read_packet(const std::string& text);
std::string name_of(Packet packet);

class Content {
public:
    Content(int writer, std::uint64_t signature, Packet packet = Packet::random);

    // Fills a body that is the same in every transfer. `buffer` is 8-byte aligned and `bytes` long.
    void fill(std::byte* buffer, std::size_t bytes) const;
    // Completes the transfer at `offset` of the file: sets the page words, which check_pages()
    // compares, and a body that differs between transfers.
    void stamp_transfer(std::byte* buffer, std::size_t bytes, std::uint64_t offset) const;
    // The first wrong page word; none: all are right.
    std::optional<Mismatch> check_pages(const std::byte* buffer, std::size_t bytes,
                                        std::uint64_t offset) const;
    // Compares every byte. Overwrites the page words of `buffer`.
    std::optional<Mismatch> check_bytes(std::byte* buffer, std::size_t bytes,
                                        std::uint64_t offset) const;

private:
    bool differs_between_transfers() const {
        return packet_ == Packet::offset || packet_ == Packet::incompressible;
    }
    std::uint64_t page_word(std::uint64_t offset) const;
    std::uint64_t body_word(std::size_t buffer_offset, std::uint64_t offset) const;
    std::uint64_t body_key(std::uint64_t offset) const;  // of pseudorandom words
    void fill_body(std::byte* buffer, std::size_t bytes, std::uint64_t offset) const;
    // The offset in the buffer of the first wrong byte of the body; none: all are right.
    std::optional<std::size_t> find_wrong_byte(const std::byte* buffer, std::size_t bytes,
                                               std::uint64_t offset) const;

    Packet packet_;
    std::uint64_t body_key_, page_key_;  // keys of the pseudorandom words
    std::uint64_t identity_;             // writer and signature
};

}  // namespace assay::storage
