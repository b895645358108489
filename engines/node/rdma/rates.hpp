// Average and peak message rate of a timed part, from the times of posts and completions.
//
// Both are defined as in perftest. The average is all messages over the time from the first post to
// the last completion. The peak is the highest rate of all windows from the posting of one message
// to the completion of the same or a later one. Messages queued before a window do not count, so
// the peak is close to the average of a steady flow; a much higher peak means an unsteady flow.
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
    void posted(Nanoseconds time) { posts_.push_back(time); }
    // `messages` is the total number of completed messages.
    void completed(std::uint64_t messages, Nanoseconds time) {
        completions_.push_back({messages, time});
    }

    // Messages per second; 0 if nothing was completed.
    double average() const;
    double peak() const;

private:
    struct Completion {
        std::uint64_t messages;
        Nanoseconds time;
    };
    std::vector<Nanoseconds> posts_;
    std::vector<Completion> completions_;
};

}  // namespace assay::rdma
