// Decodes the events of a buffer, in the layout of event_layout.hpp. The bytes are not trusted: an
// invalid event ends the decoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "profile/heap/event_layout.hpp"

namespace assay::heap {

// Calls in the order of the buffer: sink.event(Event), sink.call_ticks(ticks) for the last event,
// and sink.text(kind, step, bytes). `step`: the time of the thread's last event before the buffer.
template <class Sink>
void decode_buffer(std::span<const std::uint64_t> words, std::uint64_t step, Sink& sink) {
    const auto bits = [](std::uint64_t word, int shift, int width) {
        return word >> shift & ((std::uint64_t{1} << width) - 1);
    };
    std::uint32_t stack_of_code[1 << code_bits] = {};
    std::uint64_t base = 0;
    for (const std::uint64_t *next = words.data(), *end = next + words.size(); next < end;) {
        const std::uint64_t word = *next++, opcode = bits(word, 0, opcode_bits);
        switch (static_cast<Opcode>(opcode)) {
            case Opcode::advance_time: step += word >> opcode_bits; break;
            case Opcode::define_stack:
                stack_of_code[bits(word, opcode_bits, code_bits)] =
                    static_cast<std::uint32_t>(bits(word, steps_shift, stack_bits));
                break;
            case Opcode::set_base: base = word >> opcode_bits; break;
            case Opcode::call_ticks:
                sink.call_ticks(static_cast<std::uint32_t>(word >> opcode_bits));
                break;
            case Opcode::text: {
                const std::size_t bytes = word >> (2 * opcode_bits),
                                  text_words = (bytes + sizeof word - 1) / sizeof word;
                if (bytes > words.size() * sizeof word ||
                    text_words > static_cast<std::size_t>(end - next))
                    return;
                sink.text(static_cast<Kind>(bits(word, opcode_bits, opcode_bits)), step,
                          std::span(reinterpret_cast<const std::uint8_t*>(next), bytes));
                next += text_words;
                break;
            }
            case Opcode::full_event: {
                if (end - next < 2) return;
                const std::uint64_t kind = bits(word, opcode_bits, opcode_bits);
                sink.event(
                    {step << time_shift, (next[0] & address_mask) | kind << kind_shift, next[1],
                     static_cast<std::uint32_t>(bits(word, 2 * opcode_bits, stack_bits)), 0});
                next += 2;
                break;
            }
            default: {
                const auto kind = static_cast<Kind>(opcode);
                if (kind > Kind::free) return;
                step += bits(word, steps_shift, step_bits);
                const bool is_allocated = returns_block(kind);
                const std::uint64_t delta = static_cast<std::uint64_t>(
                    static_cast<std::int64_t>(word) >> (is_allocated ? delta_shift : size_shift));
                const std::uint64_t address = (base + (delta << address_shift)) & address_mask;
                if (is_allocated) base = address;
                sink.event({step << time_shift, address | opcode << kind_shift,
                            is_allocated ? bits(word, size_shift, size_bits) : 0,
                            stack_of_code[bits(word, opcode_bits, code_bits)], 0});
            }
        }
    }
}

}  // namespace assay::heap
