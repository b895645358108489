// Fills the layout memo: walks stacks that are not in it and stores them.
#include "profile/stack/unwinder.hpp"

#include <utility>

namespace assay::stack {

std::atomic<std::uint32_t> generation{0};

StackId Unwinder::walk_and_store(const Frame& start, Tree& tree, bool uses_memo) {
    ++walks_;
    if (!bounds_.contains(start.sp)) return walk_unknown_stack(start, tree);
    const StackId id = cache_.walk(start, bounds_, rules_, tree);
    if (uses_memo && id != no_stack && cache_.frame_count() > 0 && cache_.word_count() > 0 &&
        cache_.word_count() <= max_words && should_store(start))
        store(start, id);
    return id;
}

// Walks a stack outside of the thread's own (a coroutine's). It may be unmapped before the next
// capture, so nothing is cached.
StackId Unwinder::walk_unknown_stack(const Frame& start, Tree& tree) {
    const Bounds bounds = regions_.bounds_above(start.sp);
    if (!bounds.contains(start.sp)) return tree.child(lost_root, start.address());
    cache_.restart();
    const StackId id = cache_.walk(start, bounds, rules_, tree);
    cache_.restart();
    return id;
}

// Whether to store another stack of this start.
bool Unwinder::should_store(const Frame& start) {
    MissHistory& history = histories_[history_index(start)];
    if (history.stored < max_stored) {
        ++history.stored;
        return true;
    }
    history.penalty = static_cast<std::uint16_t>(history.penalty + miss_cost);
    if (history.penalty < max_penalty) return true;
    history.penalty = max_penalty - 2 * miss_cost;
    history.skips_left = skipped_lookups;
    return false;
}

// Stores the stack that was walked last in the memo.
void Unwinder::store(const Frame& start, StackId id) {
    std::uint32_t offset[max_words], n = 0;
    for (; n < cache_.word_count(); ++n)
        offset[n] = static_cast<std::uint32_t>((cache_.slot(n) - start.sp) / 8);
    // Padded to a multiple of four by repeating a word.
    for (; n % 4 != 0; ++n) offset[n] = offset[n - 1];
    const std::uint32_t index = find_or_add_layout(start, offset, n);
    Layout& layout = layouts_[index];
    const auto* base = reinterpret_cast<const std::uint64_t*>(start.sp);
    const bool is_first = layout.key_words == 0 && single_entries_[index].serial != layout.serial;
    if (const Entry* other = is_first ? nullptr : candidate(base, index); other != nullptr)
        add_key_word(base, layout, *other);
    Entry* entry = &single_entries_[index];
    if (layout.key_words != 0) {
        const std::uint64_t h = hash_key_words(base, layout);
        const std::size_t slot = free_slot(h);
        entry_tags_[slot] = {tag_of(h), layout.serial, index};
        entry = &entries_[slot];
    }
    entry->serial = layout.serial;
    entry->id = id;
    entry->extension = {};
    for (std::uint32_t k = 0; k < n; ++k) entry->word[k] = base[layout.offset[k]];
}

// Returns the index of the layout with this start and these offsets. A new layout replaces the
// oldest.
std::uint32_t Unwinder::find_or_add_layout(const Frame& start, const std::uint32_t* offset,
                                           std::uint32_t n) {
    const unsigned set = set_index(start);
    unsigned way = 0;
    for (; way < ways && keys_[set][way].pc != 0; ++way) {
        const std::uint32_t index = set * ways + way;
        const Layout& layout = layouts_[index];
        if (keys_[set][way].pc == start.pc && keys_[set][way].sp == start.sp &&
            layout.called == start.called && layout.uses_bp == cache_.needs_bp() &&
            (!layout.uses_bp || layout.bp == start.bp) && layout.n == n &&
            std::memcmp(walk_order_[index], offset, n * sizeof *offset) == 0)
            return index;
    }
    if (way == ways) way = next_victim_[set]++ % ways;
    keys_[set][way] = {start.pc, start.sp};
    const std::uint32_t index = set * ways + way;
    layouts_[index] = {.bp = start.bp,
                       .serial = ++last_serial_,
                       .n = n,
                       .key_words = 0,
                       .uses_bp = cache_.needs_bp(),
                       .called = start.called,
                       .offset = {}};
    std::memcpy(layouts_[index].offset, offset, n * sizeof *offset);
    std::memcpy(walk_order_[index], offset, n * sizeof *offset);
    return index;
}

// Adds the first word in which this stack differs from `other` to the key words. This reorders the
// words, so the stored stacks of the layout become invalid.
void Unwinder::add_key_word(const std::uint64_t* base, Layout& layout, const Entry& other) {
    std::uint32_t k = layout.key_words;
    while (k < layout.n && base[layout.offset[k]] == other.word[k]) ++k;
    if (k == layout.n) return;
    std::swap(layout.offset[k], layout.offset[layout.key_words]);
    ++layout.key_words;
    layout.serial = ++last_serial_;
}

// Returns a free slot, or one whose layout was replaced, or else any slot of the bucket.
std::size_t Unwinder::free_slot(std::uint64_t hash) const {
    const std::size_t first = bucket_of(hash);
    for (std::size_t k = first; k < first + probes; ++k)
        if (entry_tags_[k].serial == 0 ||
            entry_tags_[k].serial != layouts_[entry_tags_[k].layout].serial)
            return k;
    return first + walks_ % probes;
}

StackId Unwinder::walk(Frame frame, Tree& tree) {
    constexpr unsigned max_frames = 2048;
    std::uint64_t addresses[max_frames];
    unsigned n = 0;
    StackId root = lost_root;
    while (n < max_frames) {
        addresses[n++] = frame.address();
        const Step result = step(frame, rules_.find(frame.address()), bounds_);
        if (result.end == Step::End::none) continue;
        if (result.end == Step::End::outermost) root = complete_root;
        break;
    }
    return tree.insert(root, {addresses, n});
}

void Unwinder::clear(std::uint32_t now) {
    generation_ = now;
    if (walks_ == 0) return;  // nothing is stored; clearing would make untouched memory resident
    // Entries become invalid with their layouts.
    for (unsigned index = 0; index < ways << set_bits; ++index)
        if (Key& key = keys_[index / ways][index % ways]; key.pc != 0) {
            key = {};
            layouts_[index].serial = 0;
        }
    rules_.clear();
    cache_.clear();
}

}  // namespace assay::stack
