// The layout of events in a buffer. EventEncoder writes it, decode_buffer() reads it.
//
// Most events take one 64-bit word: written words displace the program's own data from the caches,
// and the recorder has to copy them. The lowest 4 bits of a word are its opcode. Bits are
// listed from the lowest on:
//
//     an allocation           | kind 4 | code 9 | steps 12 | size 19 | delta 20 |
//       (a Kind that returns_block): `delta`, signed, is the block's address less `base` in units
//       of 16 bytes. The block becomes the new `base`.
//     a free                  | kind 4 | code 9 | steps 12 | delta 39           |
//       (Kind::free, Kind::realloc_from): `delta` as above, but `base` stays.
//     Opcode::advance_time    |  0 | steps 60          |  added to the steps of the next event
//     Opcode::define_stack    |  8 | code 9 | stack 24 |  from here on `code` stands for `stack`
//     Opcode::set_base        |  9 | address 60        |  `base`: the next allocation's address
//     Opcode::call_ticks      | 10 | ticks 60          |  duration of the previous event's call
//     Opcode::full_event      | 11 | kind 4 | stack 24 |  then two words: address, size
//     Opcode::text            | 12 | kind 4 | bytes 56 |  then the bytes, padded to whole words
//       (Kind::modules, thread, mappings, python; arena.hpp describes the text)
//
// A code is a thread's short number for a stack (a node of the stack tree, 24 bits). A step is 16
// ticks of the time-stamp counter; `steps` is the time since the thread's previous event. At the
// start of a buffer no code is defined and `base` is 0.
#pragma once

#include <cstdint>

#include "profile/heap/arena.hpp"

namespace assay::heap {

// Opcodes 1 to 6 are an event's Kind (arena.hpp), malloc to free.
enum class Opcode : std::uint8_t {
    advance_time = 0,
    define_stack = 8,
    set_base,
    call_ticks,
    full_event,
    text
};

inline constexpr int opcode_bits = 4, code_bits = 9, step_bits = 12, size_bits = 19,
                     delta_bits = 20, free_delta_bits = 39, stack_bits = 24;
static_assert(opcode_bits + code_bits + step_bits + size_bits + delta_bits == 64);
static_assert(opcode_bits + code_bits + step_bits + free_delta_bits == 64);

// The lowest bit of each field in its word.
inline constexpr int steps_shift = opcode_bits + code_bits, size_shift = steps_shift + step_bits,
                     delta_shift = size_shift + size_bits;

inline constexpr int time_shift = 4;     // ticks in a step, as a power of 2
inline constexpr int address_shift = 4;  // bytes in a unit of `delta`, as a power of 2

// The code of a stack. Stacks with the same code replace each other. This is
// Knuth's multiplicative hash (The Art of Computer Programming 3, 6.4).
inline unsigned code_of(std::uint32_t stack) { return stack * 0x9e3779b9u >> (32 - code_bits); }

// Whether an event of this kind holds a block that the call returned.
inline bool returns_block(Kind kind) {
    return kind == Kind::malloc || kind == Kind::calloc || kind == Kind::memalign ||
           kind == Kind::realloc;
}

}  // namespace assay::heap
