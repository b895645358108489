// Events as a hook writes them: mostly a word each, since what is written here is what the
// program's own data have to make room for in its caches, and what the recorder has to copy.
#pragma once

#include <cstdint>
#include <span>

#include "profile/heap/arena.hpp"

namespace assay::heap {

//     lowest 4 bits    the rest, from the lowest on
//     a Kind up to     code of the stack 9 | steps of 16 ticks since the thread's last event 12 |
//       Kind::free       of one that gives a block: size 19, address less `base` in steps of 16
//                        bytes 20 signed; of the others: the same difference in 39 bits. `base` is
//                        the block that was given last.
//     define           code 9 | number of the stack 24: what the code stands for from here on
//     pause            steps 60, which are added to those of the next event
//     base             address 60: of the next block that is given
//     cost             ticks that the call of the event before has taken
//     wide             Kind 4 | number of the stack 24; the address and the size follow in two
//                      words
//     text             Kind 4 | bytes 56; they follow, filled up to whole words
//
// At the start of a buffer no code stands for anything, and `base` is 0.
enum class Word : std::uint8_t { pause = 0, define = 8, base, cost, wide, text };

inline constexpr int word_kind_bits = 4, time_shift = 4, stack_bits = 24, code_bits = 9,
                     step_bits = 12, size_bits = 19, place_bits = 20, far_place_bits = 39,
                     place_shift = 4;
static_assert(word_kind_bits + code_bits + step_bits + size_bits + place_bits == 64);
static_assert(word_kind_bits + code_bits + step_bits + far_place_bits == 64);

inline unsigned code_of(std::uint32_t stack) { return stack * 0x9e3779b9u >> (32 - code_bits); }

// Of kinds that have a block of their own.
inline bool gives_block(Kind kind) {
    return kind == Kind::malloc || kind == Kind::calloc || kind == Kind::memalign ||
           kind == Kind::realloc;
}

class Words {
public:
    // What the longest event takes: a depth; a pause, a code, a base, or a wide one; and a cost.
    static constexpr std::uint32_t longest = 9;

    std::uint64_t* at = nullptr;   // where the next one goes
    std::uint64_t* end = nullptr;  // of the buffer, less the room of the longest event

    void start(std::uint64_t* buffer, std::size_t words) {
        at = buffer;
        end = buffer + words - (longest - 1);
        base_ = 0;
        __builtin_memset(codes_, 0, sizeof codes_);
    }
    void stop() { at = end = nullptr; }

    // There is room for it.
    void put(Kind kind, std::uint32_t stack, std::uint64_t steps, std::uint64_t address,
             std::uint64_t size) {
        const bool has_word =
            (size >> size_bits | (address & 15) | address >> 48) == 0 && kind <= Kind::free;
        if (__builtin_expect(!has_word, 0)) return put_wide(kind, stack, steps, address, size);
        const unsigned code = code_of(stack);
        if (__builtin_expect(codes_[code] != stack, 0)) {
            codes_[code] = stack;
            *at++ = name(Word::define) | std::uint64_t{code} << word_kind_bits |
                    std::uint64_t{stack} << steps_at;
        }
        if (__builtin_expect(steps >> step_bits != 0, 0)) {
            *at++ = name(Word::pause) | steps << word_kind_bits;
            steps = 0;
        }
        const std::uint64_t head = static_cast<std::uint64_t>(kind) |
                                   std::uint64_t{code} << word_kind_bits | steps << steps_at;
        auto place =
            static_cast<std::uint64_t>(static_cast<std::int64_t>(address - base_) >> place_shift);
        if (gives_block(kind)) {
            if (__builtin_expect(!fits(place, place_bits), 0)) {
                *at++ = name(Word::base) | address << word_kind_bits;
                place = 0;
            }
            base_ = address;
            *at++ = head | size << size_at | place << place_at;
        } else {
            if (__builtin_expect(!fits(place, far_place_bits), 0))
                return put_wide(kind, stack, steps, address, size);
            *at++ = head | place << size_at;
        }
    }
    void put_cost(std::uint32_t ticks) {
        *at++ = name(Word::cost) | std::uint64_t{ticks} << word_kind_bits;
    }
    // False when it has no room.
    bool put_text(Kind kind, const char* text, std::size_t bytes) {
        const std::size_t filled = (bytes + sizeof *at - 1) / sizeof *at;
        if (at + 1 + filled > end) return false;
        *at = name(Word::text) | static_cast<std::uint64_t>(kind) << word_kind_bits |
              bytes << (2 * word_kind_bits);
        __builtin_memcpy(at + 1, text, bytes);
        at += 1 + filled;
        return true;
    }

    static constexpr int steps_at = word_kind_bits + code_bits, size_at = steps_at + step_bits,
                         place_at = size_at + size_bits;

private:
    static constexpr std::uint64_t name(Word word) { return static_cast<std::uint64_t>(word); }
    // As a signed number of so many bits.
    static constexpr bool fits(std::uint64_t value, int bits) {
        return value + (std::uint64_t{1} << (bits - 1)) < std::uint64_t{1} << bits;
    }

    // What has no word of its own.
    __attribute__((noinline)) void put_wide(Kind kind, std::uint32_t stack, std::uint64_t steps,
                                            std::uint64_t address, std::uint64_t size) {
        if (steps != 0) *at++ = name(Word::pause) | steps << word_kind_bits;
        *at++ = name(Word::wide) | static_cast<std::uint64_t>(kind) << word_kind_bits |
                std::uint64_t{stack} << (2 * word_kind_bits);
        *at++ = address;
        *at++ = size;
    }

    std::uint64_t base_ = 0;
    std::uint32_t codes_[1 << code_bits] = {};  // the stack that each stands for
};

}  // namespace assay::heap
