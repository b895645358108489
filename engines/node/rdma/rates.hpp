// Average and peak of a timed part, from the times at which its messages were posted and completed.
//
// Both are those of perftest. The average is all messages over the time from the first post to the
// last completion. The peak is the best of all windows that reach from the posting of one message
// to the completion of it or of a later one: messages of the window over its time. A window that
// begins with a full queue of messages before it counts only its own, so the peak is hardly above
// the average of a steady flow, and a peak far above it means that the flow was not steady.
#pragma once

#include <cstdint>
#include <vector>

#include "core/clock.hpp"

namespace assay::rdma {

class Timeline {
public:
    explicit Timeline(std::size_t messages) {
        posts_.reserve(messages);
        completions_.reserve(messages);
    }
    void posted(Nanoseconds at) { posts_.push_back(at); }
    // `messages` in all are complete by now.
    void completed(std::uint64_t messages, Nanoseconds at) {
        completions_.push_back({messages, at});
    }

    // Messages a second; 0 when nothing was completed.
    double average() const;
    double peak() const;

private:
    struct Completion {
        std::uint64_t messages;
        Nanoseconds at;
    };
    std::vector<Nanoseconds> posts_;
    std::vector<Completion> completions_;
};

}  // namespace assay::rdma
