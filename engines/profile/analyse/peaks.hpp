// The most that was live at any moment of groups of stacks that overlap: of a function with all
// that it calls, say.
//
// To follow each group at each event would take a stack's depth of additions an event. Events are
// looked at in batches instead: a group whose live bytes at the batch's start, and the most that
// each of its stacks gains within the batch, together do not exceed its peak, cannot have a new
// one. Only the other groups are followed event by event, and in a program that is not growing
// there are none. The result is exact.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace assay::heap {

class GroupPeaks {
public:
    // `groups_of` a stack is asked once, when the stack is first met.
    GroupPeaks(std::size_t groups,
               std::function<std::vector<std::uint32_t>(std::uint32_t stack)> groups_of)
        : groups_of_(std::move(groups_of)), groups_(groups) {}

    // A stack's live bytes have changed; in the order of time.
    void add(std::uint32_t stack, std::int64_t bytes) {
        batch_.push_back({bytes, stack});
        if (batch_.size() == batch_events) look();
    }
    void finish() { look(); }
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
        std::vector<std::uint32_t> groups, followed;
        std::int64_t gained = 0, most = 0;  // within the batch
        bool known = false, touched = false;
    };
    struct Group {
        std::int64_t live = 0, peak = 0;
        std::int64_t gain = 0, bound = 0;  // within the batch
        bool touched = false;
    };

    void look();

    std::function<std::vector<std::uint32_t>(std::uint32_t)> groups_of_;
    std::vector<Group> groups_;
    std::vector<Stack> stacks_;
    std::vector<Change> batch_;
    std::vector<std::uint32_t> touched_stacks_, touched_groups_;
};

}  // namespace assay::heap
