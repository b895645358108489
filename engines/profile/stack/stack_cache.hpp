// Caches the frames of the stack that was walked last, and the stack words that determined the
// walk. The next stack usually shares the outer frames; its walk ends at the first shared frame.
//
// The cached words are compared with the stack before use, from the outermost frame inwards, so the
// result equals that of a full walk. A capture in an interpreter that is a hundred frames deep, on
// a different stack each time, then takes only a few steps.
#pragma once

#include <cstdint>

#include "profile/stack/tree.hpp"
#include "profile/stack/walk.hpp"

namespace assay::stack {

class StackCache {
public:
    // Walks the stack from `start` outwards. Returns no_stack if the tree is full. The stack is a
    // descendant of lost_root if it is deeper than max_frames or its outermost frames are
    // unreadable.
    StackId walk(const Frame& start, const Bounds& bounds, RuleCache& rules, Tree& tree);
    void clear();
    // Drops the cached stack, but not the cached nodes.
    void restart() { frame_count_ = word_count_ = 0; }

    // These describe the stack that was walked last: whether the walk depends on the BP of its
    // start, and the words that determined the walk, with their addresses (slots).
    bool needs_bp() const { return frame_count_ > 0 && frames_[frame_count_ - 1].needs_bp; }
    std::uint32_t word_count() const {
        return frame_count_ > 0 ? frames_[frame_count_ - 1].word_count : 0;
    }
    std::uint64_t slot(std::uint32_t k) const { return slots_[k]; }
    std::uint64_t word(std::uint32_t k) const { return words_[k]; }
    std::uint32_t frame_count() const { return frame_count_; }
    const Frame& frame(std::uint32_t k) const { return frames_[k].frame; }  // outermost first
    // Number of frames, from the outermost inwards, that were reused from the previous stack.
    std::uint32_t reused_count() const { return reused_count_; }
    std::uint64_t lost() const { return lost_; }  // stacks that could not be read to their end

private:
    static constexpr std::uint32_t max_frames = 2048, max_words = 4 * max_frames, child_bits = 13;

    struct CachedFrame {
        Frame frame;
        StackId id;
        std::uint32_t word_count;  // words that determine the walk from here outwards
        bool needs_bp;             // the walk depends on this frame's BP
    };
    struct NewFrame {  // walked, but not cached yet
        Frame frame;
        Step step;
    };
    struct Child {
        std::uint64_t address;
        StackId parent, id;
    };

    std::uint32_t count_unchanged(const Frame& start) const;
    bool push(const NewFrame& added, StackId root, Tree& tree);
    StackId child(StackId parent, std::uint64_t address, Tree& tree);
    void add_slot(std::uint64_t slot);

    std::uint32_t frame_count_ = 0;
    std::uint32_t reused_count_ = 0;
    std::uint32_t word_count_ = 0;
    std::uint64_t lost_ = 0;
    CachedFrame frames_[max_frames];  // outermost first
    NewFrame new_frames_[max_frames];
    std::uint64_t slots_[max_words], words_[max_words];
    Child children_[1 << child_bits];
};

}  // namespace assay::stack
