#include "profile/analyse/peaks.hpp"

#include <algorithm>

namespace assay::heap {

void GroupPeaks::look() {
    for (const Change& change : batch_) {
        if (change.stack >= stacks_.size()) stacks_.resize(change.stack + 1);
        Stack& one = stacks_[change.stack];
        if (!one.touched) {
            one.touched = true;
            touched_stacks_.push_back(change.stack);
        }
        one.gained += change.bytes;
        one.most = std::max(one.most, one.gained);
    }
    for (const std::uint32_t number : touched_stacks_) {
        Stack& one = stacks_[number];
        if (!one.known) one.groups = groups_of_(number);
        one.known = true;
        for (const std::uint32_t group : one.groups) {
            Group& its = groups_[group];
            if (!its.touched) {
                its.touched = true;
                touched_groups_.push_back(group);
            }
            its.gain += one.gained;
            its.bound += one.most;
        }
    }
    bool any = false;
    for (const std::uint32_t number : touched_stacks_) {
        Stack& one = stacks_[number];
        for (const std::uint32_t group : one.groups)
            if (groups_[group].live + groups_[group].bound > groups_[group].peak)
                one.followed.push_back(group);
        any |= !one.followed.empty();
    }
    std::vector<std::int64_t> before;
    for (const std::uint32_t group : touched_groups_) before.push_back(groups_[group].live);
    if (any)
        for (const Change& change : batch_)
            for (const std::uint32_t group : stacks_[change.stack].followed) {
                Group& its = groups_[group];
                its.live += change.bytes;
                its.peak = std::max(its.peak, its.live);
            }
    for (std::size_t k = 0; k < touched_groups_.size(); ++k) {
        Group& its = groups_[touched_groups_[k]];
        its.live = before[k] + its.gain;
        its.gain = its.bound = 0;
        its.touched = false;
    }
    for (const std::uint32_t number : touched_stacks_) {
        Stack& one = stacks_[number];
        one.followed.clear();
        one.gained = one.most = 0;
        one.touched = false;
    }
    touched_stacks_.clear();
    touched_groups_.clear();
    batch_.clear();
}

}  // namespace assay::heap
