// What payloads hold: every 8-byte word is a function of source, destination, message number and
// offset, so that a flipped bit, a message in the wrong place, and what an earlier message left in
// the buffer all differ from what must be there.
//
// Word i is key + i * step, the key a hash of source, destination and message number: additions
// only, so that stamping and verifying run at the speed of memory. The words of two messages
// coincide at most where their keys happen to differ by a small multiple of the step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace assay {

std::uint64_t stamp_key(int source, int destination, std::uint64_t message);

// The 8 bytes that belong at `offset`, a multiple of 8.
std::uint64_t stamped_word(std::uint64_t key, std::size_t offset);

// `data` is 8-byte aligned, of any length.
void stamp(std::byte* data, std::size_t bytes, std::uint64_t key);

// Offset of the first byte that differs from the stamp; none when all are right.
std::optional<std::size_t> first_wrong_byte(const std::byte* data, std::size_t bytes,
                                            std::uint64_t key);

// Makes sure that a short message (under 8 bytes, where the stamps of two messages can coincide) is
// seen missing if nothing arrives: the complement of what must arrive.
void poison(std::byte* data, std::size_t bytes, std::uint64_t key);

}  // namespace assay
