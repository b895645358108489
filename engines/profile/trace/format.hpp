// A heap trace on disk: one file a process image, a sequence of chunks, each readable by itself.
//
//     ChunkHead | payload (zstd)        again and again
//
// Written in order and never changed, so that a run that was killed is readable up to its last
// whole chunk; a damaged chunk is skipped by looking for the next head. Numbers are little-endian.
// Times are ticks of the processor's time-stamp counter; the process chunks relate them to the
// clock. What the payloads hold:
//
//     process   Process, then the program's command line, and after a zero its rank in an MPI
//               program, if it is one; and after one more, of a process that ran already when its
//               recording began, how long it had: decimal, in nanoseconds. First, and again at the
//               end with the end's clocks
//     nodes     of the stack tree, from `first` on: each parent (varint) and address (varint,
//               delta, zigzag), some of which are Python's and no addresses (heap/python_nodes.hpp)
//     modules   text, a line an object: "load-bias begin end build-id path", the numbers in
//               hexadecimal
//     thread    the thread's number as the system has it, and its name
//     python    text, lines as heap/python.hpp has them: what the nodes of Python's frames stand
//               for, which C frames run them, and an interpreter that was not understood. In traces
//               of before there was none, and no such nodes
//     raw       events of one thread, in order, as its hooks have written them (words.hpp): while
//               the program runs, since packing them takes time that it wants itself; `first` is
//               the step before the first event. These payloads are not compressed.
//     events    of one thread, in order: columns that are compressed each by itself, see
//               encode_events, and not once more together. What "assay-heap pack" makes of the
//               former. Blocks have no addresses any more: each is known by the thread that has
//               asked for it and by its number among that thread's blocks; who gives it up says how
//               many blocks ago that was.
//     samples   of the process: each time (delta), virtual and resident pages (delta, zigzag),
//               varints
//     mappings  text, a line a writable mapping of an object, and of the zeroes after it: "begin
//               end pages path", the numbers in hexadecimal; of `pages`, four a digit, the lowest
//               first, those are set that are in memory. The last such chunk counts; its `first` is
//               when it was made
//     faults    of the process: each time (ns of CLOCK_REALTIME, delta, zigzag), thread as the
//               system numbers it, instruction, address and the last words of the thread's stack
//               (deltas, zigzag), varints; `first` is the first one's time; a chunk of none says
//               that they were watched
//     code      text, a line a function that was made at run time: "begin bytes name", the numbers
//               in hexadecimal. Of lines that speak of one address the last counts
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "profile/heap/words.hpp"

namespace assay::heap {

// 5 were events whose columns were compressed together, 9 page faults without a stack: those are
// not read any more.
enum class ChunkKind : std::uint32_t {
    process = 1,
    nodes,
    modules,
    thread,
    samples = 6,
    raw,
    mappings,
    python = 10,
    faults,
    code,
    events
};

// At a page fault, from the stack pointer upwards; 0 beyond the stack's end.
inline constexpr std::size_t stack_words = 16;
using StackWords = std::array<std::uint64_t, stack_words>;

struct ChunkHead {
    static constexpr std::uint32_t tag = 0x50414548;  // "HEAP"
    std::uint32_t magic = tag;
    ChunkKind kind{};
    std::uint32_t thread = 0;  // serial
    std::uint32_t count = 0;   // events, nodes, samples
    std::uint64_t first = 0;   // time of the first event; of nodes, the number of the first
    std::uint64_t last = 0;
    std::uint32_t raw_bytes = 0, stored_bytes = 0;
    std::uint32_t payload_sum = 0;  // low half of XXH3 of the stored bytes
    std::uint32_t head_sum = 0;     // the same of the fields before
};
static_assert(sizeof(ChunkHead) == 48);

struct Process {
    std::uint32_t pid = 0, parent = 0;
    std::uint64_t start_ticks = 0, start_ns = 0, end_ticks = 0, end_ns = 0;
    std::uint64_t lost = 0;  // events that could not be recorded
    std::uint32_t complete =
        0;  // an Ending (heap/arena.hpp); unless it is `none`, all of it is here
    std::uint32_t page_bytes = 4096;
    std::uint64_t at_least = 0;  // bytes: smaller blocks were left out
    std::uint64_t sample = 0;    // bytes: about one block was taken for each so many; 0: all
};

using Bytes = std::vector<std::uint8_t>;

// ---- integers of variable length, seven bits a byte

inline void put_varint(Bytes& to, std::uint64_t value) {
    while (value >= 128) {
        to.push_back(static_cast<std::uint8_t>(value | 128));
        value >>= 7;
    }
    to.push_back(static_cast<std::uint8_t>(value));
}
inline std::uint64_t zigzag(std::int64_t value) {
    return (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
}
inline std::int64_t unzigzag(std::uint64_t value) {
    return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
}

// Reads what put_varint wrote, never beyond the end: then `ok` is false and zeros follow.
class Reader {
public:
    explicit Reader(std::span<const std::uint8_t> data)
        : at_(data.data()), end_(at_ + data.size()) {}
    std::uint64_t varint() {
        std::uint64_t value = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            if (at_ == end_) break;
            const std::uint8_t byte = *at_++;
            value |= static_cast<std::uint64_t>(byte & 127) << shift;
            if (byte < 128) return value;
        }
        ok_ = false;
        return 0;
    }
    std::span<const std::uint8_t> take(std::size_t bytes) {
        if (bytes > static_cast<std::size_t>(end_ - at_)) {
            ok_ = false;
            return {};
        }
        const std::span<const std::uint8_t> taken(at_, bytes);
        at_ += bytes;
        return taken;
    }
    bool ok() const { return ok_; }
    bool at_end() const { return at_ == end_; }

private:
    const std::uint8_t *at_, *end_;
    bool ok_ = true;
};

// ---- events in columns

// What stands for the address of a block once it is packed: no address of a user's process, and
// never used twice.
inline constexpr int number_bits = 36;
inline constexpr std::uint64_t named = std::uint64_t{1} << 55;
inline std::uint64_t name_block(std::uint32_t thread, std::uint64_t number) {
    return named | static_cast<std::uint64_t>(thread) << number_bits | number;
}
inline bool is_named(std::uint64_t address) { return (address & named) != 0; }

// Whether the event's block is a new one.
inline bool gives(Kind kind, std::uint64_t address, std::uint64_t size) {
    return kind == Kind::malloc || kind == Kind::calloc || kind == Kind::memalign ||
           (kind == Kind::realloc && size != not_reallocated && address != 0);
}

// The number of the first block that is given, then the columns kind | time (delta) of what gives a
// block | of the others | block | size (of events that have one) | stack | cost (of those that were
// timed). Times are in the arena's steps of 16 ticks, far below what passes between two threads'
// use of a block; the first is relative to `first`. The column of blocks has nothing for one that
// is new, the age for one of the same thread, thread and number for one of another's, and an
// address where the block has no name. New blocks of a thread are numbered without gaps.
//
// A column is two streams: the first bytes of its varints, and all others. What repeats in one is
// not interrupted by chance in the other, and each has its own frequencies: a quarter to a half is
// saved. Each stream is its length (varint), and unless that is 0 the length of the zstd frame that
// follows.
void encode_events(std::span<const Event> events, std::uint32_t thread, std::uint64_t first,
                   Bytes& to);
// False when the bytes are no such columns.
bool decode_events(std::span<const std::uint8_t> from, std::uint32_t count, std::uint32_t thread,
                   std::uint64_t first, std::vector<Event>& into);

// Events as hooks write them (Words), from the step of the one before: event(Event), cost(ticks) of
// the last event, and text(kind, step, bytes) are called in their order.
template <class Sink>
void expand(std::span<const std::uint64_t> words, std::uint64_t step, Sink& sink) {
    constexpr int steps_at = Words::steps_at, size_at = Words::size_at, place_at = Words::place_at;
    const auto bits = [](std::uint64_t word, int at, int n) {
        return word >> at & ((std::uint64_t{1} << n) - 1);
    };
    std::uint32_t codes[1 << code_bits] = {};
    std::uint64_t base = 0;
    for (const std::uint64_t *at = words.data(), *end = at + words.size(); at < end;) {
        const std::uint64_t word = *at++;
        switch (const std::uint64_t name = bits(word, 0, word_kind_bits); static_cast<Word>(name)) {
            case Word::pause: step += word >> word_kind_bits; break;
            case Word::define:
                codes[bits(word, word_kind_bits, code_bits)] =
                    static_cast<std::uint32_t>(bits(word, steps_at, stack_bits));
                break;
            case Word::base: base = word >> word_kind_bits; break;
            case Word::cost: sink.cost(static_cast<std::uint32_t>(word >> word_kind_bits)); break;
            case Word::text: {
                const std::size_t bytes = word >> (2 * word_kind_bits),
                                  filled = (bytes + sizeof word - 1) / sizeof word;
                if (bytes > words.size() * sizeof word ||
                    filled > static_cast<std::size_t>(end - at))
                    return;
                sink.text(static_cast<Kind>(bits(word, word_kind_bits, word_kind_bits)), step,
                          std::span(reinterpret_cast<const std::uint8_t*>(at), bytes));
                at += filled;
                break;
            }
            case Word::wide:
                if (end - at < 2) return;
                sink.event({step << time_shift,
                            (at[0] & address_mask) | bits(word, word_kind_bits, word_kind_bits)
                                                         << kind_shift,
                            at[1],
                            static_cast<std::uint32_t>(bits(word, 2 * word_kind_bits, stack_bits)),
                            0});
                at += 2;
                break;
            default: {
                const auto kind = static_cast<Kind>(name);
                if (kind > Kind::free) return;
                step += bits(word, steps_at, step_bits);
                const bool is_given = gives_block(kind);
                const std::uint64_t place = static_cast<std::uint64_t>(
                    static_cast<std::int64_t>(word) >> (is_given ? place_at : size_at));
                const std::uint64_t address = (base + (place << place_shift)) & address_mask;
                if (is_given) base = address;
                sink.event({step << time_shift, address | name << kind_shift,
                            is_given ? bits(word, size_at, size_bits) : 0,
                            codes[bits(word, word_kind_bits, code_bits)], 0});
            }
        }
    }
}

inline Kind kind_of(const Event& event) { return static_cast<Kind>(event.address >> kind_shift); }
inline std::uint64_t address_of(const Event& event) { return event.address & address_mask; }
inline bool has_size(Kind kind) { return kind != Kind::free && kind != Kind::realloc_from; }

}  // namespace assay::heap
