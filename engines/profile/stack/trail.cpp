#include "profile/stack/trail.hpp"

#include <cstring>

namespace assay::stack {
namespace {

std::uint64_t load(std::uint64_t at) { return *reinterpret_cast<const std::uint64_t*>(at); }

}  // namespace

void Trail::clear() {
    restart();
    std::memset(static_cast<void*>(children_), 0, sizeof children_);
}

// Marks outside of `start`, from the outermost one on, whose words are what they were.
std::uint32_t Trail::unchanged(const Frame& start) const {
    std::uint32_t n = n_;
    while (n > 0 && marks_[n - 1].frame.sp < start.sp) --n;
    const std::uint32_t words = n > 0 ? marks_[n - 1].words : 0;
    constexpr std::uint32_t at_once = 8;
    std::uint32_t same = 0;
    for (std::uint64_t differs = 0; same + at_once <= words; same += at_once) {
        for (std::uint32_t k = 0; k < at_once; ++k)
            differs |= load(slots_[same + k]) ^ words_[same + k];
        if (differs != 0) break;
    }
    while (same < words && load(slots_[same]) == words_[same]) ++same;
    while (n > 0 && marks_[n - 1].words > same) --n;
    return n;
}

StackId Trail::follow(const Frame& start, const Bounds& bounds, RuleCache& rules, Tree& tree) {
    std::uint32_t kept = unchanged(start), taken = 0;
    StackId root = no_stack;
    for (Frame frame = start;;) {
        while (kept > 0 && marks_[kept - 1].frame.sp < frame.sp) --kept;
        if (kept > 0) {
            const Mark& mark = marks_[kept - 1];
            if (mark.frame.sp == frame.sp && mark.frame.pc == frame.pc &&
                mark.frame.called == frame.called && mark.frame.lr_at == frame.lr_at &&
                (!mark.needs_bp || mark.frame.bp == frame.bp))
                break;
        }
        if (kept + taken == most_frames) {
            root = lost_root;
            break;
        }
        Taken& one = taken_[taken++];
        one.frame = frame;
        one.step = step(frame, rules.find(frame.address()), bounds);
        if (one.step.end == Step::End::none) continue;
        root = one.step.end == Step::End::last ? complete_root : lost_root;
        break;
    }
    if (root != no_stack) kept = 0;
    lost_ += root == lost_root;
    n_ = kept_ = kept;
    words_used_ = kept > 0 ? marks_[kept - 1].words : 0;
    while (taken > 0)
        if (!push(taken_[--taken], root, tree)) {
            clear();
            return no_stack;
        }
    const StackId id = marks_[n_ - 1].id;
    if (root == lost_root) n_ = 0;  // where it was cut off is no place to go on from
    return id;
}

// The next frame inwards.
bool Trail::push(const Taken& taken, StackId root, Tree& tree) {
    const Mark* outer = n_ > 0 ? &marks_[n_ - 1] : nullptr;
    const Step& step = taken.step;
    const bool outer_needs_bp = outer != nullptr && step.end == Step::End::none && outer->needs_bp;
    for (std::uint32_t k = 0; k < step.reads; ++k) add(step.read[k]);
    if (step.new_bp && outer_needs_bp) add(step.bp_slot);
    const StackId id = child(outer != nullptr ? outer->id : root, taken.frame.address(), tree);
    marks_[n_++] = {taken.frame, id, words_used_, step.used_bp || (outer_needs_bp && !step.new_bp)};
    return id != no_stack;
}

void Trail::add(std::uint64_t slot) {
    slots_[words_used_] = slot;
    words_[words_used_++] = load(slot);
}

StackId Trail::child(StackId parent, std::uint64_t address, Tree& tree) {
    Child& known = children_[((address ^ (std::uint64_t{parent} << 40)) * 0x9e3779b97f4a7c15ull) >>
                             (64 - child_bits)];
    if (known.address != address || known.parent != parent)
        known = {address, parent, tree.child(parent, address)};
    return known.id;
}

}  // namespace assay::stack
