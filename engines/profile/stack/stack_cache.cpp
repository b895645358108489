// Walks a stack until it meets the cached previous stack, and caches the new frames.
#include "profile/stack/stack_cache.hpp"

#include <cstring>

namespace assay::stack {
namespace {

std::uint64_t load64(std::uint64_t address) {
    return *reinterpret_cast<const std::uint64_t*>(address);
}

}  // namespace

void StackCache::clear() {
    restart();
    std::memset(static_cast<void*>(children_), 0, sizeof children_);
}

// The number of cached frames outside of `start`, from the outermost inwards, whose words on the
// stack are unchanged.
std::uint32_t StackCache::count_unchanged(const Frame& start) const {
    std::uint32_t n = frame_count_;
    while (n > 0 && frames_[n - 1].frame.sp < start.sp) --n;
    const std::uint32_t caller_words = n > 0 ? frames_[n - 1].word_count : 0;
    constexpr std::uint32_t stride = 8;
    std::uint32_t unchanged_words = 0;
    for (std::uint64_t difference = 0; unchanged_words + stride <= caller_words;
         unchanged_words += stride) {
        for (std::uint32_t k = 0; k < stride; ++k)
            difference |= load64(slots_[unchanged_words + k]) ^ words_[unchanged_words + k];
        if (difference != 0) break;
    }
    while (unchanged_words < caller_words &&
           load64(slots_[unchanged_words]) == words_[unchanged_words])
        ++unchanged_words;
    while (n > 0 && frames_[n - 1].word_count > unchanged_words) --n;
    return n;
}

StackId StackCache::walk(const Frame& start, const Bounds& bounds, RuleCache& rules, Tree& tree) {
    std::uint32_t unchanged = count_unchanged(start), new_count = 0;
    StackId root = no_stack;
    for (Frame frame = start;;) {
        while (unchanged > 0 && frames_[unchanged - 1].frame.sp < frame.sp) --unchanged;
        if (unchanged > 0) {
            const CachedFrame& cached = frames_[unchanged - 1];
            if (cached.frame.sp == frame.sp && cached.frame.pc == frame.pc &&
                cached.frame.called == frame.called &&
                cached.frame.lr_address == frame.lr_address &&
                (!cached.needs_bp || cached.frame.bp == frame.bp))
                break;
        }
        if (unchanged + new_count == max_frames) {
            root = lost_root;
            break;
        }
        NewFrame& new_frame = new_frames_[new_count++];
        new_frame.frame = frame;
        new_frame.step = step(frame, rules.find(frame.address()), bounds);
        if (new_frame.step.end == Step::End::none) continue;
        root = new_frame.step.end == Step::End::outermost ? complete_root : lost_root;
        break;
    }
    if (root != no_stack) unchanged = 0;
    lost_ += root == lost_root;
    frame_count_ = reused_count_ = unchanged;
    word_count_ = unchanged > 0 ? frames_[unchanged - 1].word_count : 0;
    while (new_count > 0)
        if (!push(new_frames_[--new_count], root, tree)) {
            clear();
            return no_stack;
        }
    const StackId id = frames_[frame_count_ - 1].id;
    if (root == lost_root)
        frame_count_ = 0;  // the next walk must not stop at this incomplete stack
    return id;
}

// Appends a frame to the cached stack, inwards.
bool StackCache::push(const NewFrame& new_frame, StackId root, Tree& tree) {
    const CachedFrame* outer = frame_count_ > 0 ? &frames_[frame_count_ - 1] : nullptr;
    const Step& step = new_frame.step;
    const bool outer_needs_bp = outer != nullptr && step.end == Step::End::none && outer->needs_bp;
    for (std::uint32_t k = 0; k < step.slot_count; ++k) add_slot(step.slots[k]);
    if (step.has_new_bp && outer_needs_bp) add_slot(step.bp_slot);
    const StackId id = child(outer != nullptr ? outer->id : root, new_frame.frame.address(), tree);
    frames_[frame_count_++] = {new_frame.frame, id, word_count_,
                               step.uses_bp || (outer_needs_bp && !step.has_new_bp)};
    return id != no_stack;
}

void StackCache::add_slot(std::uint64_t slot) {
    slots_[word_count_] = slot;
    words_[word_count_++] = load64(slot);
}

StackId StackCache::child(StackId parent, std::uint64_t address, Tree& tree) {
    if (const StackId id = tree.linked_child(parent, address); id != no_stack) return id;
    Child& child_entry =
        children_[((address ^ (std::uint64_t{parent} << 40)) * 0x9e3779b97f4a7c15ull) >>
                  (64 - child_bits)];
    if (child_entry.address != address || child_entry.parent != parent)
        child_entry = {address, parent, tree.child(parent, address)};
    return child_entry.id;
}

}  // namespace assay::stack
