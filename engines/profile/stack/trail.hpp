// The last stack that was walked, frame by frame, with the words that decided its way: the next one
// is mostly the same from some frame on, and is walked only until there.
//
// What is kept is compared before it is used, from the outermost word inwards, so that the result
// is that of a walk over the whole stack. An interpreter that is a hundred frames deep and never
// twice on the same stack costs a few steps a capture in this way.
#pragma once

#include <cstdint>

#include "profile/stack/tree.hpp"
#include "profile/stack/walk.hpp"

namespace assay::stack {

class Trail {
public:
    // The stack from `start` outwards. no_stack when the tree is full; under lost_root when it is
    // deeper than there is room, or its outermost frames cannot be read.
    StackId follow(const Frame& start, const Bounds& bounds, RuleCache& rules, Tree& tree);
    void clear();
    // The stack that was followed last is none to go on from.
    void restart() { n_ = words_used_ = 0; }

    // Of the stack that was followed last: whether its walk hangs on the start's bp, and the words
    // that decided it.
    bool needs_bp() const { return n_ > 0 && marks_[n_ - 1].needs_bp; }
    std::uint32_t words() const { return n_ > 0 ? marks_[n_ - 1].words : 0; }
    std::uint64_t slot(std::uint32_t k) const { return slots_[k]; }
    std::uint64_t word(std::uint32_t k) const { return words_[k]; }
    std::uint32_t frames() const { return n_; }
    const Frame& frame(std::uint32_t k) const { return marks_[k].frame; }  // the outermost first
    std::uint32_t first_new() const {
        return kept_;
    }  // of them: those before it were on the stack before, too
    std::uint64_t lost() const { return lost_; }  // stacks that could not be read to their end

private:
    static constexpr std::uint32_t most_frames = 2048, most_words = 4 * most_frames,
                                   child_bits = 13;

    struct Mark {
        Frame frame;
        StackId id;
        std::uint32_t words;  // that decide the walk from here outwards
        bool needs_bp;        // it hangs on this frame's bp
    };
    struct Taken {  // a step of the walk that is not yet a mark
        Frame frame;
        Step step;
    };
    struct Child {
        std::uint64_t address;
        StackId parent, id;
    };

    std::uint32_t unchanged(const Frame& start) const;
    bool push(const Taken& taken, StackId root, Tree& tree);
    StackId child(StackId parent, std::uint64_t address, Tree& tree);
    void add(std::uint64_t slot);

    std::uint32_t n_ = 0;  // marks, the outermost first
    std::uint32_t kept_ = 0;
    std::uint32_t words_used_ = 0;
    std::uint64_t lost_ = 0;
    Mark marks_[most_frames];
    Taken taken_[most_frames];
    std::uint64_t slots_[most_words], words_[most_words];
    Child children_[1 << child_bits];
};

}  // namespace assay::stack
