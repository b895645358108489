#include "profile/stack/unwinder.hpp"

#include <utility>

namespace assay::stack {

std::atomic<std::uint32_t> generation{0};

StackId Unwinder::follow(const Frame& start, Tree& tree) {
    ++walks_;
    if (!bounds_.holds(start.sp)) return follow_elsewhere(start, tree);
    const StackId id = trail_.follow(start, bounds_, rules_, tree);
    if (id != no_stack && trail_.frames() > 0 && trail_.words() > 0 && trail_.words() <= max_words)
        learn(start, id);
    return id;
}

// On a stack of the program's own making, which may be gone at the next capture: nothing is kept of
// it.
StackId Unwinder::follow_elsewhere(const Frame& start, Tree& tree) {
    const Bounds bounds = regions_.above(start.sp);
    if (!bounds.holds(start.sp)) return tree.child(lost_root, start.address());
    trail_.restart();
    const StackId id = trail_.follow(start, bounds, rules_, tree);
    trail_.restart();
    return id;
}

// What the trail says of the stack that has just been followed.
void Unwinder::learn(const Frame& start, StackId id) {
    std::uint32_t offset[max_words], n = 0;
    for (; n < trail_.words(); ++n)
        offset[n] = static_cast<std::uint32_t>((trail_.slot(n) - start.sp) / 8);
    // Filled up to a multiple of four with a word that is there already.
    for (; n % 4 != 0; ++n) offset[n] = offset[n - 1];
    const std::uint32_t index = layout_of(start, offset, n);
    Layout& layout = layouts_[index];
    const auto* base = reinterpret_cast<const std::uint64_t*>(start.sp);
    const bool is_first = layout.telling == 0 && alone_[index].serial != layout.serial;
    if (const Entry* other = is_first ? nullptr : candidate(base, index); other != nullptr)
        tell_apart(base, layout, *other);
    const std::uint64_t h = hash_telling(base, layout);
    Entry& entry = layout.telling == 0 ? alone_[index] : room_for(h);
    entry.tag = tag_of(h);
    entry.serial = layout.serial;
    entry.layout = index;
    entry.id = id;
    entry.note = {};
    for (std::uint32_t k = 0; k < n; ++k) entry.word[k] = base[layout.offset[k]];
}

// The layout of this start with these offsets: the one there is, or a new one in place of the
// oldest.
std::uint32_t Unwinder::layout_of(const Frame& start, const std::uint32_t* offset,
                                  std::uint32_t n) {
    const unsigned set = set_of(start);
    unsigned way = 0;
    for (; way < ways && keys_[set][way].pc != 0; ++way) {
        const std::uint32_t index = set * ways + way;
        const Layout& known = layouts_[index];
        if (keys_[set][way].pc == start.pc && keys_[set][way].sp == start.sp &&
            known.called == start.called && known.uses_bp == trail_.needs_bp() &&
            (!known.uses_bp || known.bp == start.bp) && known.n == n &&
            std::memcmp(learned_[index], offset, n * sizeof *offset) == 0)
            return index;
    }
    if (way == ways) way = victim_[set]++ % ways;
    keys_[set][way] = {start.pc, start.sp};
    const std::uint32_t index = set * ways + way;
    layouts_[index] = {start.bp, ++serials_, n, 0, trail_.needs_bp(), start.called, {}};
    std::memcpy(layouts_[index].offset, offset, n * sizeof *offset);
    std::memcpy(learned_[index], offset, n * sizeof *offset);
    return index;
}

// One more word is telling: that in which this stack and one with the same telling words differ.
// Where the words of a layout have another order, what was met with it is learned anew.
void Unwinder::tell_apart(const std::uint64_t* base, Layout& layout, const Entry& other) {
    std::uint32_t k = layout.telling;
    while (k < layout.n && base[layout.offset[k]] == other.word[k]) ++k;
    if (k == layout.n) return;
    std::swap(layout.offset[k], layout.offset[layout.telling]);
    ++layout.telling;
    layout.serial = ++serials_;
}

// A free place, or that of one whose layout is no more; else any.
Unwinder::Entry& Unwinder::room_for(std::uint64_t hash) {
    Entry* first = &entries_[place_of(hash)];
    for (Entry* entry = first; entry < first + probes; ++entry)
        if (entry->serial == 0 || entry->serial != layouts_[entry->layout].serial) return *entry;
    return first[walks_ % probes];
}

StackId Unwinder::walk(Frame frame, Tree& tree) {
    constexpr unsigned most = 2048;
    std::uint64_t addresses[most];
    unsigned n = 0;
    StackId root = lost_root;
    while (n < most) {
        addresses[n++] = frame.address();
        const Step taken = step(frame, rules_.find(frame.address()), bounds_);
        if (taken.end == Step::End::none) continue;
        if (taken.end == Step::End::last) root = complete_root;
        break;
    }
    return tree.insert(root, {addresses, n});
}

void Unwinder::forget(std::uint32_t now) {
    generation_ = now;
    if (walks_ == 0)
        return;  // nothing is known, and memory that nobody has touched is better left so
    // Entries go with their layouts.
    for (unsigned index = 0; index < ways << set_bits; ++index)
        if (Key& key = keys_[index / ways][index % ways]; key.pc != 0) {
            key = {};
            layouts_[index].serial = 0;
        }
    rules_.clear();
    trail_.clear();
}

}  // namespace assay::stack
