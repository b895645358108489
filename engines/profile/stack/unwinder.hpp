// The stack of the calling thread as a number, in tens of nanoseconds: the layout memo.
//
// A program returns to the same places again and again. For a starting point (pc, sp, bp) the memo
// knows the *layout*: the offsets of the words that decided an earlier walk (return addresses, and
// saved RBPs where a frame's extent hangs on one). The stacks that were met with one layout differ
// in a few of those words; these are hashed and find the one that it may be, and then all words are
// compared by independent loads, so a hit is exact: the same start and the same words make the same
// walk. Of most layouts there is but one stack, which is compared at once. A miss follows the trail
// of the stack before (trail.hpp), and learns. So does a stack that is deeper than an entry has
// room for. Nothing is written to the program's stack, so exceptions, longjmp and shadow stacks are
// not disturbed.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

#include "profile/stack/region.hpp"
#include "profile/stack/trail.hpp"
#include "profile/stack/tree.hpp"
#include "profile/stack/walk.hpp"

namespace assay::stack {

// Raised when an object has been unloaded: what was learned of its addresses no longer holds.
extern std::atomic<std::uint32_t> generation;

struct UnwindCounts {
    std::uint64_t walks = 0;  // stacks that were not in the memo
    std::uint64_t lost = 0;   // stacks whose outermost frames could not be read
    std::uint64_t rules =
        0;  // that were read: of code that has not been on a stack before, or not lately
};

// What somebody who adds to stacks has last added to one: it lies beside what was loaded to know
// the stack.
struct Note {
    std::uint64_t key;
    StackId id, inner;
};

// One a thread, in zeroed memory of its own (18 MB of address space, touched as it fills).
class Unwinder {
public:
    // Of a thread that begins: the stack that was followed last is another's, and may be gone.
    void set_bounds(Bounds bounds) {
        bounds_ = bounds;
        trail_.restart();
    }
    const Bounds& bounds() const { return bounds_; }

    // The stack from `start` outwards, start.pc innermost. no_stack when the tree is full.
    StackId capture(const Frame& start, Tree& tree) { return look_up(start, tree).id; }

    // The same, with its note; none of a stack that was not in the memo.
    struct Known {
        StackId id;
        Note* note;
    };
    Known look_up(const Frame& start, Tree& tree) {
        if (const std::uint32_t now = generation.load(std::memory_order_acquire);
            now != generation_)
            forget(now);
        if (Entry* entry = find(start); entry != nullptr) return {entry->id, &entry->note};
        return {follow(start, tree), nullptr};
    }

    // The same by rules alone: what a hit is checked against.
    StackId walk(Frame frame, Tree& tree);

    UnwindCounts counts() const { return {walks_, trail_.lost(), rules_.read()}; }
    // Of the last stack that was not in the memo.
    const Trail& trail() const { return trail_; }

private:
    static constexpr unsigned max_words = 28;  // a multiple of 4: they are loaded four at a time
    static constexpr unsigned set_bits = 11, ways = 8, entry_bits = 15, probes = 8;
    static constexpr std::uint64_t golden = 0x9e3779b97f4a7c15ull;

    // Where the words of a walk lie, in words from its start's sp.
    struct Layout {
        std::uint64_t bp;       // of the start; matters where uses_bp
        std::uint32_t serial;   // tells it from what stood in its place before
        std::uint32_t n;        // words, filled up to a multiple of 4
        std::uint32_t telling;  // of them, the first ones: in which the stacks that were met
                                // differ; 0: one was met
        bool uses_bp, called;
        std::uint32_t offset[max_words];
    };
    struct Key {
        std::uint64_t pc, sp;
    };
    // What those words were, and the stack that follows from them.
    struct alignas(64) Entry {
        std::uint32_t tag;     // of the telling ones
        std::uint32_t serial;  // of the layout; 0: free
        std::uint32_t layout;
        StackId id;
        Note note;
        std::uint64_t word[max_words];
    };
    static_assert(sizeof(Entry) == 256);

    Entry* find(const Frame& start) {
        const unsigned set = set_of(start);
        const Key* keys = keys_[set];
        const auto* base = reinterpret_cast<const std::uint64_t*>(start.sp);
        for (unsigned way = 0; way < ways; ++way) {
            if (keys[way].pc != start.pc || keys[way].sp != start.sp) {
                if (keys[way].pc == 0) break;
                continue;
            }
            const unsigned index = set * ways + way;
            const Layout& layout = layouts_[index];
            if ((layout.uses_bp && layout.bp != start.bp) || layout.called != start.called)
                continue;
            Entry* entry = candidate(base, index);
            if (entry != nullptr && is_same(base, layout, *entry)) return entry;
        }
        return nullptr;
    }

    // The stack with these telling words, whose others may still differ.
    Entry* candidate(const std::uint64_t* base, unsigned index) {
        const Layout& layout = layouts_[index];
        if (__builtin_expect(layout.telling == 0, 1)) return &alone_[index];
        const std::uint64_t h = hash_telling(base, layout);
        Entry* first = &entries_[place_of(h)];
        for (Entry* entry = first; entry < first + probes && entry->serial != 0; ++entry)
            if (entry->serial == layout.serial && entry->tag == tag_of(h)) return entry;
        return nullptr;
    }

    static bool is_same(const std::uint64_t* base, const Layout& layout, const Entry& entry) {
        std::uint64_t differs = 0;
        for (std::uint32_t k = 0; k < layout.n; k += 4) {
            differs |= (base[layout.offset[k]] ^ entry.word[k]) |
                       (base[layout.offset[k + 1]] ^ entry.word[k + 1]) |
                       (base[layout.offset[k + 2]] ^ entry.word[k + 2]) |
                       (base[layout.offset[k + 3]] ^ entry.word[k + 3]);
            asm(""
                : "+r"(differs));  // words from all over the stack: to gather them into vectors
                                   // takes longer
        }
        return differs == 0;
    }

    static unsigned set_of(const Frame& start) {
        return static_cast<unsigned>(((start.pc ^ (start.sp << 20)) * golden) >> (64 - set_bits));
    }
    static std::uint64_t hash_telling(const std::uint64_t* base, const Layout& layout) {
        std::uint64_t h = layout.serial * golden;
        for (std::uint32_t k = 0; k < layout.telling; ++k)
            h = ((h ^ (h >> 32)) + base[layout.offset[k]]) * golden;
        return h;
    }
    static std::size_t place_of(std::uint64_t hash) { return hash >> (64 - entry_bits); }
    static std::uint32_t tag_of(std::uint64_t hash) {
        return static_cast<std::uint32_t>(hash >> 16);
    }

    StackId follow(const Frame& start, Tree& tree);
    StackId follow_elsewhere(const Frame& start, Tree& tree);
    void learn(const Frame& start, StackId id);
    std::uint32_t layout_of(const Frame& start, const std::uint32_t* offset, std::uint32_t n);
    void tell_apart(const std::uint64_t* base, Layout& layout, const Entry& other);
    Entry& room_for(std::uint64_t hash);
    void forget(std::uint32_t now);

    Bounds bounds_{};
    std::uint32_t generation_ = 0, serials_ = 0;
    std::uint64_t walks_ = 0;
    std::uint8_t victim_[1 << set_bits];
    Key keys_[1 << set_bits][ways];
    Layout layouts_[ways << set_bits];
    std::uint32_t learned_[ways << set_bits]
                          [max_words];  // each layout's offsets in the order of the walk
    Entry alone_[ways << set_bits];  // of each layout the first stack, as long as no other is known
    Entry entries_[(1 << entry_bits) + probes];
    RuleCache rules_;
    Trail trail_;
    Regions regions_;
};

}  // namespace assay::stack
