// The accounting of one stream: which messages arrived, once, again, or behind a later one.
//
// Exact for every message that is at most a window behind the latest: one bit each. What comes
// later than that can no longer be told from a duplicate; it is counted apart and stays lost. A
// million messages are 100 s of a stream of the COBALT test, and seconds of the fastest that one
// processor can receive.
//
// Reordered is what RFC 4737 calls so: a message, not a duplicate, that is behind the highest one
// before it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

namespace assay::node {

template <std::uint64_t window_bits = 1 << 20>
class Account {
    static_assert(window_bits % 64 == 0 && (window_bits & (window_bits - 1)) == 0);

public:
    static constexpr std::uint64_t window =
        window_bits - 64;  // a word is reused as soon as it is entered

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
    std::uint64_t seen() const { return next_; }  // the highest sequence number, and 1

private:
    using Words = std::array<std::uint64_t, window_bits / 64>;

    static std::uint64_t word(std::uint64_t sequence) {
        return (sequence / 64) % (window_bits / 64);
    }
    bool is_set(std::uint64_t sequence) const {
        return (*words_)[word(sequence)] >> (sequence % 64) & 1;
    }
    void set(std::uint64_t sequence) {
        (*words_)[word(sequence)] |= std::uint64_t{1} << (sequence % 64);
    }

    // Forgets what was in the words that are entered now.
    void advance(std::uint64_t sequence) {
        const std::uint64_t current = next_ == 0 ? 0 : (next_ - 1) / 64;
        const std::uint64_t entered = std::min(sequence / 64 - current, window_bits / 64);
        for (std::uint64_t k = 0; k < entered; ++k) (*words_)[word(sequence - 64 * k)] = 0;
        set(sequence);
        next_ = sequence + 1;
    }

    std::unique_ptr<Words> words_ = std::make_unique<Words>();
    std::uint64_t next_ = 0, unique_ = 0, duplicates_ = 0, reordered_ = 0, late_ = 0;
};

}  // namespace assay::node
