// The stack of the calling thread as a number, in tens of nanoseconds: the layout memo.
//
// A program returns to the same places again and again. For a starting point (pc, sp, bp) the memo knows
// the *layout*: the offsets of the words that decided an earlier walk (return addresses, and saved RBPs
// where a frame's extent hangs on one). Those words are loaded by independent loads and hashed; the hash
// finds the stack, and the words themselves are compared, so a hit is exact: the same start and the same
// words make the same walk. A miss walks by rules and learns. Nothing is written to the program's stack,
// so exceptions, longjmp and shadow stacks are not disturbed.
//
// A stack that is deeper than one entry holds is a chain of segments, each found in this way.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

#include "profile/stack/tree.hpp"
#include "profile/stack/walk.hpp"

namespace assay::stack {

// Raised when an object has been unloaded: what was learned of its addresses no longer holds.
extern std::atomic<std::uint32_t> generation;

struct UnwindCounts {
    std::uint64_t walks = 0;  // segments that had to be walked
    std::uint64_t lost = 0;   // stacks whose outermost frames could not be read
};

// One a thread, in zeroed memory of its own (14 MB of address space, touched as it fills).
class Unwinder {
public:
    void set_bounds(Bounds bounds) { bounds_ = bounds; }
    const Bounds& bounds() const { return bounds_; }

    // The stack from `start` outwards, start.pc innermost. no_stack when the tree is full.
    StackId capture(const Frame& start, Tree& tree) {
        if (const std::uint32_t now = generation.load(std::memory_order_acquire); now != generation_) forget(now);
        if (const Entry* entry = find(start); entry != nullptr && entry->is_outermost) return entry->id;
        return capture_chain(start, tree);
    }

    // The same by rules alone: what a hit is checked against.
    StackId walk(Frame frame, Tree& tree);

    const UnwindCounts& counts() const { return counts_; }

private:
    static constexpr unsigned max_words = 28;  // a multiple of 4: they are loaded four at a time
    static constexpr unsigned max_segments = 64;
    static constexpr unsigned set_bits = 10, ways = 8, entry_bits = 15, probes = 8, join_bits = 12;
    static constexpr std::uint64_t golden = 0x9e3779b97f4a7c15ull;

    // Where the words of a walk lie, in words from its start's sp.
    struct Layout {
        std::uint64_t bp;      // of the start; matters where uses_bp
        std::uint32_t serial;  // tells it from what stood in its place before
        std::uint32_t n;       // words, filled up to a multiple of 4
        bool uses_bp, called;
        std::uint32_t offset[max_words];
    };
    struct Key {
        std::uint64_t pc, sp;
    };
    // What those words were, and what follows from them.
    struct Entry {
        std::uint64_t hash;
        std::uint32_t serial;  // of the layout; 0: free
        StackId id;            // of the whole stack, where this is its outermost segment
        std::uint32_t number;    // of this entry, never used twice
        std::uint32_t frames;    // in this segment
        std::uint64_t next_pc;   // where the next segment begins
        std::uint32_t next_sp, next_bp;  // in words from the start's sp; next_bp `as_at_start` or its slot
        bool is_outermost, next_called;
        std::uint64_t word[max_words];
    };
    // A segment and the stack outside of it make a stack.
    struct Join {
        std::uint32_t number;  // of the entry; 0: free
        StackId outer, id;
    };
    struct Link {  // of a chain of segments
        std::uint32_t number, frames;
        Frame start;
    };
    struct Lesson;  // a segment being walked

    static constexpr std::uint32_t as_at_start = ~std::uint32_t{0};

    const Entry* find(const Frame& start) const {
        const unsigned set = set_of(start);
        const Key* keys = keys_[set];
        const auto* base = reinterpret_cast<const std::uint64_t*>(start.sp);
        for (unsigned way = 0; way < ways; ++way) {
            if (keys[way].pc != start.pc || keys[way].sp != start.sp) {
                if (keys[way].pc == 0) break;
                continue;
            }
            const Layout& layout = layouts_[set][way];
            if ((layout.uses_bp && layout.bp != start.bp) || layout.called != start.called) continue;
            const std::uint64_t h = hash_words(base, layout);
            const std::size_t at = (h * golden) >> (64 - entry_bits);
            for (unsigned probe = 0; probe < probes; ++probe) {
                const Entry& entry = entries_[at + probe];
                if (entry.serial == 0) break;
                if (entry.hash != h || entry.serial != layout.serial) continue;
                std::uint64_t differs = 0;
                for (std::uint32_t k = 0; k < layout.n; ++k) differs |= base[layout.offset[k]] ^ entry.word[k];
                if (differs == 0) return &entry;
            }
        }
        return nullptr;
    }

    static unsigned set_of(const Frame& start) {
        return static_cast<unsigned>(((start.pc ^ (start.sp << 20)) * golden) >> (64 - set_bits));
    }
    static std::uint64_t hash_words(const std::uint64_t* base, const Layout& layout) {
        std::uint64_t h0 = layout.serial * golden, h1 = 0, h2 = 0, h3 = 0;
        for (std::uint32_t k = 0; k < layout.n; k += 4) {
            h0 += base[layout.offset[k]] * factor(k);
            h1 += base[layout.offset[k + 1]] * factor(k + 1);
            h2 += base[layout.offset[k + 2]] * factor(k + 2);
            h3 += base[layout.offset[k + 3]] * factor(k + 3);
        }
        return h0 + h1 + h2 + h3;
    }
    static constexpr std::uint64_t factor(std::uint32_t k) { return (golden * (2 * k + 3)) | 1; }

    StackId capture_chain(const Frame& start, Tree& tree);
    const Entry* learn(const Frame& start, Tree& tree);
    bool walk_segment(const Frame& start, Lesson& lesson);
    const Layout& layout_of(const Frame& start, const Lesson& lesson);
    Entry& room_for(std::uint64_t hash);
    static Frame next_of(const Frame& start, const Entry& entry);
    StackId join(StackId outer, const Link& link, Tree& tree);
    void forget(std::uint32_t now);

    Bounds bounds_{};
    std::uint32_t generation_ = 0, serials_ = 0, numbers_ = 0;
    UnwindCounts counts_{};
    std::uint8_t victim_[1 << set_bits];
    Key keys_[1 << set_bits][ways];
    Layout layouts_[1 << set_bits][ways];
    Entry entries_[(1 << entry_bits) + probes];
    Join joins_[1 << join_bits];
    RuleCache rules_;
};

}  // namespace assay::stack
