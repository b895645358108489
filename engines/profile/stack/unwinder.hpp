// Captures the stack of the calling thread as a node number of the stack tree, in tens of
// nanoseconds.
//
// A memo holds the stacks that were walked before, since programs allocate from the same places
// again and again. For a start (pc, sp, bp) the memo holds a *layout*: the offsets of the words
// that determined an earlier walk (return addresses, and saved RBPs if the extent of a frame
// depends on them). Stacks of one layout differ in a few of these words, the key words. The hash of
// the key words finds a candidate; then all words are compared. A hit is exact: the same start and
// the same words give the same walk. Most layouts have only one stack, which is compared without
// hashing.
//
// On a miss the stack is walked until it meets the previous stack (stack_cache.hpp), and stored
// unless it has more words than an entry holds. A deep recursion has more stacks than the memo can
// hold. Most of these are not stored, since a walk from the previous stack costs less than a failed
// lookup and a store. The unwinder writes nothing to the program's stack, so exceptions, longjmp
// and shadow stacks are not disturbed.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

#include "profile/stack/region.hpp"
#include "profile/stack/stack_cache.hpp"
#include "profile/stack/tree.hpp"
#include "profile/stack/walk.hpp"

namespace assay::stack {

// Incremented after an object is unloaded, which invalidates all that is cached about its
// addresses.
extern std::atomic<std::uint32_t> generation;

struct UnwindCounts {
    std::uint64_t walks = 0;  // stacks that were not in the memo
    std::uint64_t lost = 0;   // stacks whose outermost frames could not be read
    std::uint64_t rules = 0;  // unwind rules read from .eh_frame, i.e. not cached
};

// The frames that a client of the unwinder added to a stack last (Python's). It is stored in the
// memo entry, whose cache lines the lookup has already loaded.
struct Extension {
    std::uint64_t key;
    StackId id, inner;
};

// One per thread, in zeroed memory (19 MB of address space, resident as it fills).
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

    // Like capture(), and returns the extension of the entry; null if the stack was not in the
    // memo.
    struct Lookup {
        StackId id;
        Extension* extension;
    };
    Lookup look_up(const Frame& start, Tree& tree) {
        if (const std::uint32_t now = generation.load(std::memory_order_acquire);
            now != generation_)
            clear(now);
        bool uses_memo = true;
        if (Entry* entry = find(start, uses_memo); entry != nullptr)
            return {entry->id, &entry->extension};
        return {walk_and_store(start, tree, uses_memo), nullptr};
    }

    // Like capture(), with rules alone and without the memo. Tests compare the two.
    StackId walk(Frame frame, Tree& tree);

    UnwindCounts counts() const { return {walks_, cache_.lost(), rules_.rules_read()}; }
    // The stack that was walked last.
    const StackCache& cached_stack() const { return cache_; }

private:
    static constexpr unsigned max_words = 28;  // a multiple of 4: they are loaded four at a time
    static constexpr unsigned set_bits = 11, ways = 8, entry_bits = 15, probes = 8;
    static constexpr std::uint64_t hash_multiplier = 0x9e3779b97f4a7c15ull;

    // The positions of the words of a walk, as offsets in words from the SP of its start.
    struct Layout {
        std::uint64_t bp;      // of the start; compared if uses_bp
        std::uint32_t serial;  // differs from that of the layout it replaced
        std::uint32_t n;       // words, padded to a multiple of 4
        // The number of leading words in which the stored stacks differ. 0: only one is stored.
        std::uint32_t key_words;
        bool uses_bp, called;
        std::uint32_t offset[max_words];
    };
    // Hits and misses of the starts with one hash: decides whether the memo pays off for them.
    struct MissHistory {
        std::uint16_t stored;      // stacks, up to max_stored; after that `penalty` decides
        std::uint16_t penalty;     // grows with each miss, shrinks with each hit
        std::uint16_t skips_left;  // remaining lookups that bypass the memo
    };
    static constexpr unsigned history_bits = 13, max_stored = 2048;
    // A hit saves a tenth of the cost of a failed lookup and a store.
    static constexpr std::uint16_t miss_cost = 10, max_penalty = 128;
    static constexpr std::uint16_t skipped_lookups = 4096;
    struct Key {
        std::uint64_t pc, sp;
    };
    // Identifies the stack of an entry. Stored apart from the entries, so that probing touches only
    // two cache lines.
    struct EntryTag {
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

    // Sets `uses_memo` to false if the memo is bypassed for this start.
    Entry* find(const Frame& start, bool& uses_memo) {
        MissHistory& history = histories_[history_index(start)];
        if (__builtin_expect(history.skips_left != 0, 0)) {
            --history.skips_left;
            uses_memo = false;
            return nullptr;
        }
        const unsigned set = set_index(start);
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
            if (__builtin_expect(history.penalty != 0, 0)) --history.penalty;
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
        for (std::size_t k = first; k < first + probes && entry_tags_[k].serial != 0; ++k)
            if (entry_tags_[k].serial == layout.serial && entry_tags_[k].tag == tag_of(h))
                return &entries_[k];
        return nullptr;
    }

    static bool is_same(const std::uint64_t* base, const Layout& layout, const Entry& entry) {
        std::uint64_t difference = 0;
        for (std::uint32_t k = 0; k < layout.n; k += 4) {
            difference |= (base[layout.offset[k]] ^ entry.word[k]) |
                          (base[layout.offset[k + 1]] ^ entry.word[k + 1]) |
                          (base[layout.offset[k + 2]] ^ entry.word[k + 2]) |
                          (base[layout.offset[k + 3]] ^ entry.word[k + 3]);
            // The words are spread over the stack: gathering them into vectors is slower.
            asm("" : "+r"(difference));
        }
        return difference == 0;
    }

    static std::uint64_t hash_of(const Frame& start) {
        return (start.pc ^ (start.sp << 20)) * hash_multiplier;
    }
    static unsigned set_index(const Frame& start) {
        return static_cast<unsigned>(hash_of(start) >> (64 - set_bits));
    }
    static unsigned history_index(const Frame& start) {
        return static_cast<unsigned>(hash_of(start) >> (64 - history_bits));
    }
    static std::uint64_t hash_key_words(const std::uint64_t* base, const Layout& layout) {
        std::uint64_t h = layout.serial * hash_multiplier;
        for (std::uint32_t k = 0; k < layout.key_words; ++k)
            h = ((h ^ (h >> 32)) + base[layout.offset[k]]) * hash_multiplier;
        return h;
    }
    static std::size_t bucket_of(std::uint64_t hash) { return hash >> (64 - entry_bits); }
    static std::uint32_t tag_of(std::uint64_t hash) {
        return static_cast<std::uint32_t>(hash >> 16);
    }

    StackId walk_and_store(const Frame& start, Tree& tree, bool uses_memo);
    StackId walk_unknown_stack(const Frame& start, Tree& tree);
    void store(const Frame& start, StackId id);
    std::uint32_t find_or_add_layout(const Frame& start, const std::uint32_t* offset,
                                     std::uint32_t n);
    void add_key_word(const std::uint64_t* base, Layout& layout, const Entry& other);
    std::size_t free_slot(std::uint64_t hash) const;
    bool should_store(const Frame& start);
    void clear(std::uint32_t now);

    Bounds bounds_{};
    std::uint32_t generation_ = 0, last_serial_ = 0;
    std::uint64_t walks_ = 0;
    std::uint8_t next_victim_[1 << set_bits];
    MissHistory histories_[1 << history_bits];
    Key keys_[1 << set_bits][ways];
    Layout layouts_[ways << set_bits];
    std::uint32_t walk_order_[ways << set_bits]
                             [max_words];     // offsets of each layout in the order of the walk
    Entry single_entries_[ways << set_bits];  // of layouts with one known stack
    EntryTag entry_tags_[(1 << entry_bits) + probes];
    Entry entries_[(1 << entry_bits) + probes];
    RuleCache rules_;
    StackCache cache_;
    Regions regions_;
};

}  // namespace assay::stack
