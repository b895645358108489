"""The bytes that a chaos run writes, as tests/engines/chaos_io/tag.hpp defines them.

Each aligned word of 8 bytes encodes its writer: the file's slot, the rank, the operation, and the word's index in the
file. A whole word can be decoded. A part of a word can be compared with the bytes that an operation writes there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Offsets = NDArray[np.int64]
MAGIC = 0xA5
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # the factors of splitmix64
INVERSE_FIRST, INVERSE_SECOND = pow(FIRST, -1, 1 << 64), pow(SECOND, -1, 1 << 64)


@dataclass(frozen=True)
class Tags:
    """The fields of decoded words. ``valid``: the word was written by a chaos run."""

    valid: NDArray[np.bool_]
    slot: Offsets
    rank: Offsets
    operation: Offsets
    index: Offsets


def encode(slot: int, rank: int, operation: int, offsets: Offsets) -> NDArray[np.uint8]:
    """The bytes that an operation of a rank writes at these offsets of the file."""
    head = MAGIC << 56 | slot << 52 | rank << 48 | operation << 32
    words = _mix(np.uint64(head) | (offsets >> 3).astype(np.uint64))
    return (words >> ((offsets & 7) * 8).astype(np.uint64)).astype(np.uint8)


def decode(words: Words) -> Tags:
    plain = _unmix(words)

    def field(shift: int, mask: int) -> Offsets:
        return ((plain >> np.uint64(shift)) & np.uint64(mask)).astype(np.int64)

    return Tags(
        field(56, 0xFF) == MAGIC, field(52, 0xF), field(48, 0xF), field(32, 0xFFFF), field(0, 0xFFFFFFFF)
    )


def _mix(words: Words) -> Words:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(FIRST)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(SECOND)
    return words ^ (words >> np.uint64(31))


def _unmix(words: Words) -> Words:
    words = _unshift(words, 31) * np.uint64(INVERSE_SECOND)
    words = _unshift(words, 27) * np.uint64(INVERSE_FIRST)
    return _unshift(words, 30)


def _unshift(words: Words, shift: int) -> Words:
    """The inverse of ``words ^ (words >> by)`` for shifts above 64 / 3."""
    return words ^ (words >> np.uint64(shift)) ^ (words >> np.uint64(2 * shift))
