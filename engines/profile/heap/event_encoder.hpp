// Encodes events into a buffer, in the layout of event_layout.hpp. It runs inside hooks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "profile/heap/event_layout.hpp"

namespace assay::heap {

class EventEncoder {
public:
    // The most words of one hook call: a Kind::stack event (full_event, 3 words), the call's event
    // (define_stack, advance_time and full_event, 5 words) and its call_ticks (1 word).
    static constexpr std::uint32_t max_words = 9;

    std::uint64_t* next = nullptr;   // position of the next word
    std::uint64_t* limit = nullptr;  // a hook call that begins before this fits into the buffer

    void start(std::uint64_t* buffer, std::size_t words) {
        next = buffer;
        limit = buffer + words - (max_words - 1);
        base_ = 0;
        __builtin_memset(stack_of_code_, 0, sizeof stack_of_code_);
    }
    // Sets another end of the buffer.
    void set_end(std::uint64_t* end) { limit = end - (max_words - 1); }
    void stop() { next = limit = nullptr; }

    // Requires next < limit.
    void put(Kind kind, std::uint32_t stack, std::uint64_t steps, std::uint64_t address,
             std::uint64_t size) {
        const bool fits_word =
            (size >> size_bits | (address & 15) | address >> 48) == 0 && kind <= Kind::free;
        if (__builtin_expect(!fits_word, 0)) return put_full(kind, stack, steps, address, size);
        const unsigned code = code_of(stack);
        if (__builtin_expect(stack_of_code_[code] != stack, 0)) {
            stack_of_code_[code] = stack;
            *next++ = bits(Opcode::define_stack) | std::uint64_t{code} << opcode_bits |
                      std::uint64_t{stack} << steps_shift;
        }
        if (__builtin_expect(steps >> step_bits != 0, 0)) {
            *next++ = bits(Opcode::advance_time) | steps << opcode_bits;
            steps = 0;
        }
        const std::uint64_t word = static_cast<std::uint64_t>(kind) |
                                   std::uint64_t{code} << opcode_bits | steps << steps_shift;
        auto delta =
            static_cast<std::uint64_t>(static_cast<std::int64_t>(address - base_) >> address_shift);
        if (returns_block(kind)) {
            if (__builtin_expect(!fits_signed(delta, delta_bits), 0)) {
                *next++ = bits(Opcode::set_base) | address << opcode_bits;
                delta = 0;
            }
            base_ = address;
            *next++ = word | size << size_shift | delta << delta_shift;
        } else {
            if (__builtin_expect(!fits_signed(delta, free_delta_bits), 0))
                return put_full(kind, stack, steps, address, size);
            *next++ = word | delta << size_shift;
        }
    }
    void put_call_ticks(std::uint32_t ticks) {
        *next++ = bits(Opcode::call_ticks) | std::uint64_t{ticks} << opcode_bits;
    }
    // Returns false if the text does not fit into the buffer.
    bool put_text(Kind kind, const char* text, std::size_t bytes) {
        const std::size_t words = (bytes + sizeof *next - 1) / sizeof *next;
        if (next + 1 + words > limit) return false;
        *next = bits(Opcode::text) | static_cast<std::uint64_t>(kind) << opcode_bits |
                bytes << (2 * opcode_bits);
        __builtin_memcpy(next + 1, text, bytes);
        next += 1 + words;
        return true;
    }

private:
    static constexpr std::uint64_t bits(Opcode opcode) {
        return static_cast<std::uint64_t>(opcode);
    }
    static constexpr bool fits_signed(std::uint64_t value, int width) {
        return value + (std::uint64_t{1} << (width - 1)) < std::uint64_t{1} << width;
    }

    // An event that does not fit into one word.
    __attribute__((noinline)) void put_full(Kind kind, std::uint32_t stack, std::uint64_t steps,
                                            std::uint64_t address, std::uint64_t size) {
        if (steps != 0) *next++ = bits(Opcode::advance_time) | steps << opcode_bits;
        *next++ = bits(Opcode::full_event) | static_cast<std::uint64_t>(kind) << opcode_bits |
                  std::uint64_t{stack} << (2 * opcode_bits);
        *next++ = address;
        *next++ = size;
    }

    std::uint64_t base_ = 0;
    std::uint32_t stack_of_code_[1 << code_bits] = {};
};

}  // namespace assay::heap
