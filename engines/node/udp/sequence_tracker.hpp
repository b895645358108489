// Tracks the sequence numbers of one stream: which messages arrived, which arrived twice, and which
// were reordered.
//
// It keeps one bit for each message within a window behind the highest sequence number, and is
// exact for them. An older message cannot be distinguished from a duplicate; it is counted as late
// and stays lost. The default window of a million messages is 100 s of one of the twelve default
// streams, and several seconds of the fastest stream that one processor can receive.
//
// A message is reordered, as in RFC 4737, if it is not a duplicate and a message with a higher
// number arrived before it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

namespace assay::node {

template <std::uint64_t window_bits = 1 << 20>
class SequenceTracker {
    static_assert(window_bits % 64 == 0 && (window_bits & (window_bits - 1)) == 0);

public:
    // A word of bits is reused when a sequence number enters it.
    static constexpr std::uint64_t window = window_bits - 64;

    void add(std::uint64_t sequence) {
        if (sequence >= next_) {
            advance(sequence);
            ++unique_;
        } else if (next_ - sequence > window) {
            ++late_;
        } else if (is_set(sequence)) {
            ++duplicates_;
        } else {
            set(sequence);
            ++unique_;
            ++reordered_;
        }
    }

    std::uint64_t unique() const { return unique_; }
    std::uint64_t duplicates() const { return duplicates_; }
    std::uint64_t reordered() const { return reordered_; }
    std::uint64_t late() const { return late_; }
    std::uint64_t next() const { return next_; }  // the highest sequence number plus 1

private:
    using Bitmap = std::array<std::uint64_t, window_bits / 64>;

    static std::uint64_t word_index(std::uint64_t sequence) {
        return (sequence / 64) % (window_bits / 64);
    }
    bool is_set(std::uint64_t sequence) const {
        return (*bitmap_)[word_index(sequence)] >> (sequence % 64) & 1;
    }
    void set(std::uint64_t sequence) {
        (*bitmap_)[word_index(sequence)] |= std::uint64_t{1} << (sequence % 64);
    }

    // Moves the window up to `sequence` and clears the words that it enters.
    void advance(std::uint64_t sequence) {
        const std::uint64_t current = next_ == 0 ? 0 : (next_ - 1) / 64;
        const std::uint64_t entered = std::min(sequence / 64 - current, window_bits / 64);
        for (std::uint64_t k = 0; k < entered; ++k) (*bitmap_)[word_index(sequence - 64 * k)] = 0;
        set(sequence);
        next_ = sequence + 1;
    }

    std::unique_ptr<Bitmap> bitmap_ = std::make_unique<Bitmap>();
    std::uint64_t next_ = 0, unique_ = 0, duplicates_ = 0, reordered_ = 0, late_ = 0;
};

}  // namespace assay::node
