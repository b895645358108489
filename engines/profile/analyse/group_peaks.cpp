// Processes a batch of changes of live bytes and updates the peaks of the groups.
#include "profile/analyse/group_peaks.hpp"

#include <algorithm>

namespace assay::heap {
namespace {

// Modulo 2^64: a damaged trace may have any sizes.
std::int64_t sum(std::int64_t a, std::int64_t b) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

}  // namespace

void GroupPeaks::process_batch() {
    for (const Change& change : batch_) {
        if (change.stack >= stacks_.size()) stacks_.resize(change.stack + 1);
        Stack& stack = stacks_[change.stack];
        if (!stack.in_batch) {
            stack.in_batch = true;
            batch_stacks_.push_back(change.stack);
        }
        stack.gain = sum(stack.gain, change.bytes);
        stack.max_gain = std::max(stack.max_gain, stack.gain);
    }
    for (const std::uint32_t number : batch_stacks_) {
        Stack& stack = stacks_[number];
        if (!stack.has_groups) stack.groups = groups_of_(number);
        stack.has_groups = true;
        for (const std::uint32_t group : stack.groups) {
            Group& group_state = groups_[group];
            if (!group_state.in_batch) {
                group_state.in_batch = true;
                batch_groups_.push_back(group);
            }
            group_state.gain = sum(group_state.gain, stack.gain);
            group_state.max_gain = sum(group_state.max_gain, stack.max_gain);
        }
    }
    bool has_tracked = false;
    for (const std::uint32_t number : batch_stacks_) {
        Stack& stack = stacks_[number];
        for (const std::uint32_t group : stack.groups)
            if (sum(groups_[group].live, groups_[group].max_gain) > groups_[group].peak)
                stack.tracked.push_back(group);
        has_tracked |= !stack.tracked.empty();
    }
    std::vector<std::int64_t> live_before;
    live_before.reserve(batch_groups_.size());
    for (const std::uint32_t group : batch_groups_) live_before.push_back(groups_[group].live);
    if (has_tracked)
        for (const Change& change : batch_)
            for (const std::uint32_t group : stacks_[change.stack].tracked) {
                Group& group_state = groups_[group];
                group_state.live = sum(group_state.live, change.bytes);
                group_state.peak = std::max(group_state.peak, group_state.live);
            }
    for (std::size_t k = 0; k < batch_groups_.size(); ++k) {
        Group& group_state = groups_[batch_groups_[k]];
        group_state.live = sum(live_before[k], group_state.gain);
        group_state.gain = group_state.max_gain = 0;
        group_state.in_batch = false;
    }
    for (const std::uint32_t number : batch_stacks_) {
        Stack& stack = stacks_[number];
        stack.tracked.clear();
        stack.gain = stack.max_gain = 0;
        stack.in_batch = false;
    }
    batch_stacks_.clear();
    batch_groups_.clear();
    batch_.clear();
}

}  // namespace assay::heap
