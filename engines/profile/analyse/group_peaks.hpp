// Exact peaks of live bytes for overlapping groups of stacks, e.g. a function with all its callees.
//
// An update of every group at every event would take as many additions as the stack is deep.
// Therefore events are processed in batches. A group's live bytes at the start of a batch, plus the
// largest gain of each of its stacks within the batch, bound its peak. Only groups whose bound
// exceeds their known peak are tracked event by event. In a program whose memory does not grow
// there are none.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace assay::heap {

class GroupPeaks {
public:
    // `groups_of` is called once for each stack, at its first occurrence.
    GroupPeaks(std::size_t groups,
               std::function<std::vector<std::uint32_t>(std::uint32_t stack)> groups_of)
        : groups_of_(std::move(groups_of)), groups_(groups) {}

    // Changes a stack's live bytes; calls are in time order.
    void add(std::uint32_t stack, std::int64_t bytes) {
        batch_.push_back({bytes, stack});
        if (batch_.size() == batch_events) process_batch();
    }
    void finish() { process_batch(); }
    std::uint64_t peak(std::uint32_t group) const {
        return static_cast<std::uint64_t>(groups_[group].peak);
    }

private:
    static constexpr std::size_t batch_events = 1 << 15;

    struct Change {
        std::int64_t bytes;
        std::uint32_t stack;
    };
    struct Stack {
        std::vector<std::uint32_t> groups;    // all groups of the stack
        std::vector<std::uint32_t> tracked;   // those that may have a new peak in this batch
        std::int64_t gain = 0, max_gain = 0;  // bytes, within the batch
        bool has_groups = false, in_batch = false;
    };
    struct Group {
        std::int64_t live = 0, peak = 0;
        std::int64_t gain = 0, max_gain = 0;  // sums over its stacks, within the batch
        bool in_batch = false;
    };

    void process_batch();

    std::function<std::vector<std::uint32_t>(std::uint32_t)> groups_of_;
    std::vector<Group> groups_;
    std::vector<Stack> stacks_;
    std::vector<Change> batch_;
    std::vector<std::uint32_t> batch_stacks_, batch_groups_;
};

}  // namespace assay::heap
