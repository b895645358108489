// The verifiable payload: every 8-byte word is a function of source, destination, message number
// and offset. A flipped bit, a misplaced message and stale data of an earlier message all differ
// from the expected words.
//
// Word i is key + i * step, where the key is a hash of source, destination and message number. It
// takes only additions, so stamping and verifying run at memory speed. Words of two messages can be
// equal only where their keys differ by a small multiple of the step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace assay {

// The key of a message: a hash of its source, destination and number.
std::uint64_t stamp_key(int source, int destination, std::uint64_t message);

// The expected 8 bytes at `offset`, a multiple of 8.
std::uint64_t stamped_word(std::uint64_t key, std::size_t offset);

// Fills `data`, which is 8-byte aligned and of any length.
void stamp(std::byte* data, std::size_t bytes, std::uint64_t key);

// Offset of the first byte that differs from the stamp; none when all bytes match.
std::optional<std::size_t> first_wrong_byte(const std::byte* data, std::size_t bytes,
                                            std::uint64_t key);

// Prepares a receive buffer: one of under 8 bytes is filled with the stamp of the complement of the
// key, longer ones stay as they are. The stamps of two short messages can be equal, so a message
// that never arrived would otherwise go unnoticed.
void poison(std::byte* data, std::size_t bytes, std::uint64_t key);

}  // namespace assay
