// Captures the stack of the calling thread as one number, in tens of nanoseconds: the layout memo.
//
// A program comes back to the same places. For a start (pc, sp, bp) the memo holds a *layout*: the
// offsets of the words that determined an earlier walk (return addresses, and saved RBPs where a
// frame's extent depends on one). Stacks of one layout differ in a few of these words, the key
// words. Their hash finds the candidate; then all words are compared by independent loads. A hit is
// therefore exact: the same start and the same words give the same walk. Most layouts have only one
// stack, which is compared at once. A miss is walked until it meets the previous stack
// (stack_cache.hpp), and is learned unless it has more words than an entry holds. Of a recursion,
// which has more stacks than the memo holds, most are not learned: walking on from the previous one
// costs less than looking up and learning in vain. Nothing is
// written to the program's stack, so exceptions, longjmp and shadow stacks are not disturbed.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

#include "profile/stack/region.hpp"
#include "profile/stack/stack_cache.hpp"
#include "profile/stack/tree.hpp"
#include "profile/stack/walk.hpp"

namespace assay::stack {

// Incremented after an object was unloaded: what was learned about its addresses is invalid then.
extern std::atomic<std::uint32_t> generation;

struct UnwindCounts {
    std::uint64_t walks = 0;  // stacks that were not in the memo
    std::uint64_t lost = 0;   // stacks whose outermost frames could not be read
    std::uint64_t rules = 0;  // read from .eh_frame: for code that was on no recent stack
};

// The last frames that a user of the unwinder added to a stack (Python's). It is kept in the memo's
// entry, whose cache lines the lookup has loaded already.
struct Extension {
    std::uint64_t key;
    StackId id, inner;
};

// One per thread, in zeroed memory (19 MB of address space, touched as it fills).
class Unwinder {
public:
    // Called when a thread starts: the cached stack belonged to another thread and may be unmapped.
    void set_bounds(Bounds bounds) {
        bounds_ = bounds;
        cache_.restart();
    }
    const Bounds& bounds() const { return bounds_; }

    // The stack from `start` outwards, start.pc innermost. no_stack when the tree is full.
    StackId capture(const Frame& start, Tree& tree) { return look_up(start, tree).id; }

    // The same, with the extension of its entry; null for a stack that was not in the memo.
    struct Known {
        StackId id;
        Extension* extension;
    };
    Known look_up(const Frame& start, Tree& tree) {
        if (const std::uint32_t now = generation.load(std::memory_order_acquire);
            now != generation_)
            clear(now);
        bool learns = true;
        if (Entry* entry = find(start, learns); entry != nullptr)
            return {entry->id, &entry->extension};
        return {walk_and_learn(start, tree, learns), nullptr};
    }

    // The same by rules alone, without the memo. Tests compare the two.
    StackId walk(Frame frame, Tree& tree);

    UnwindCounts counts() const { return {walks_, cache_.lost(), rules_.rules_read()}; }
    // The last stack that was not in the memo.
    const StackCache& cached_stack() const { return cache_; }

private:
    static constexpr unsigned max_words = 28;  // a multiple of 4: they are loaded four at a time
    static constexpr unsigned set_bits = 11, ways = 8, entry_bits = 15, probes = 8;
    static constexpr std::uint64_t golden = 0x9e3779b97f4a7c15ull;

    // Where the words of a walk are, as offsets in words from the start's SP.
    struct Layout {
        std::uint64_t bp;         // of the start; compared if uses_bp
        std::uint32_t serial;     // tells it from the layout that was in this place before
        std::uint32_t n;          // words, padded to a multiple of 4
        std::uint32_t key_words;  // the first of them, in which known stacks differ; 0: one stack
        bool uses_bp, called;
        std::uint32_t offset[max_words];
    };
    // Of the starts with one hash: whether the memo is worth its while.
    struct Habit {
        std::uint16_t learned;  // stacks, up to max_learned; from then on `debt` decides
        std::uint16_t debt;     // of misses, which hits pay back
        std::uint16_t skips;    // lookups for which the memo is not used
    };
    static constexpr unsigned habit_bits = 13, max_learned = 2048;
    // A hit saves a tenth of what looking up in vain and learning costs.
    static constexpr std::uint16_t miss_cost = 10, max_debt = 128;
    static constexpr std::uint16_t skipped_lookups = 4096;
    struct Key {
        std::uint64_t pc, sp;
    };
    // Which stack an entry holds. Apart from the entries, so that probing touches two cache lines.
    struct Label {
        std::uint32_t tag;     // part of the hash of the key words
        std::uint32_t serial;  // of the layout; 0: free
        std::uint32_t layout;
    };
    // The values of the layout's words, and the stack that they give.
    struct alignas(64) Entry {
        StackId id;
        std::uint32_t serial;  // of the layout; 0: free
        Extension extension;
        std::uint64_t word[max_words];
    };
    static_assert(sizeof(Entry) == 256);

    // Sets `learns` to false where the memo is not used for a while.
    Entry* find(const Frame& start, bool& learns) {
        Habit& habit = habits_[habit_of(start)];
        if (__builtin_expect(habit.skips != 0, 0)) {
            --habit.skips;
            learns = false;
            return nullptr;
        }
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
            if (entry == nullptr || !is_same(base, layout, *entry)) continue;
            if (__builtin_expect(habit.debt != 0, 0)) --habit.debt;
            return entry;
        }
        return nullptr;
    }

    // The entry with the same key words; its other words may differ.
    Entry* candidate(const std::uint64_t* base, unsigned index) {
        const Layout& layout = layouts_[index];
        if (__builtin_expect(layout.key_words == 0, 1)) return &single_entries_[index];
        const std::uint64_t h = hash_key_words(base, layout);
        const std::size_t first = bucket_of(h);
        for (std::size_t k = first; k < first + probes && labels_[k].serial != 0; ++k)
            if (labels_[k].serial == layout.serial && labels_[k].tag == tag_of(h))
                return &entries_[k];
        return nullptr;
    }

    static bool is_same(const std::uint64_t* base, const Layout& layout, const Entry& entry) {
        std::uint64_t differs = 0;
        for (std::uint32_t k = 0; k < layout.n; k += 4) {
            differs |= (base[layout.offset[k]] ^ entry.word[k]) |
                       (base[layout.offset[k + 1]] ^ entry.word[k + 1]) |
                       (base[layout.offset[k + 2]] ^ entry.word[k + 2]) |
                       (base[layout.offset[k + 3]] ^ entry.word[k + 3]);
            // The words are spread over the stack: gathering them into vectors is slower.
            asm("" : "+r"(differs));
        }
        return differs == 0;
    }

    static std::uint64_t hash_of(const Frame& start) {
        return (start.pc ^ (start.sp << 20)) * golden;
    }
    static unsigned set_of(const Frame& start) {
        return static_cast<unsigned>(hash_of(start) >> (64 - set_bits));
    }
    static unsigned habit_of(const Frame& start) {
        return static_cast<unsigned>(hash_of(start) >> (64 - habit_bits));
    }
    static std::uint64_t hash_key_words(const std::uint64_t* base, const Layout& layout) {
        std::uint64_t h = layout.serial * golden;
        for (std::uint32_t k = 0; k < layout.key_words; ++k)
            h = ((h ^ (h >> 32)) + base[layout.offset[k]]) * golden;
        return h;
    }
    static std::size_t bucket_of(std::uint64_t hash) { return hash >> (64 - entry_bits); }
    static std::uint32_t tag_of(std::uint64_t hash) {
        return static_cast<std::uint32_t>(hash >> 16);
    }

    StackId walk_and_learn(const Frame& start, Tree& tree, bool learns);
    StackId walk_foreign_stack(const Frame& start, Tree& tree);
    void learn(const Frame& start, StackId id);
    std::uint32_t layout_of(const Frame& start, const std::uint32_t* offset, std::uint32_t n);
    void add_key_word(const std::uint64_t* base, Layout& layout, const Entry& other);
    std::size_t free_slot(std::uint64_t hash) const;
    bool is_worth_learning(const Frame& start);
    void clear(std::uint32_t now);

    Bounds bounds_{};
    std::uint32_t generation_ = 0, last_serial_ = 0;
    std::uint64_t walks_ = 0;
    std::uint8_t next_victim_[1 << set_bits];
    Habit habits_[1 << habit_bits];
    Key keys_[1 << set_bits][ways];
    Layout layouts_[ways << set_bits];
    std::uint32_t walk_order_[ways << set_bits]
                             [max_words];     // offsets of each layout in the order of the walk
    Entry single_entries_[ways << set_bits];  // of layouts with one known stack
    Label labels_[(1 << entry_bits) + probes];
    Entry entries_[(1 << entry_bits) + probes];
    RuleCache rules_;
    StackCache cache_;
    Regions regions_;
};

}  // namespace assay::stack
