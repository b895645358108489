// Average and peak rate from the times of posts and completions.
#include "node/rdma/rates.hpp"

#include <algorithm>

namespace assay::rdma {
namespace {

// Avoids a division by zero if two clock readings are equal.
Nanoseconds at_least_1ns(Nanoseconds duration) { return std::max<Nanoseconds>(duration, 1); }

}  // namespace

double Timeline::average() const {
    if (completions_.empty()) return 0;
    const Completion& last = completions_.back();
    return static_cast<double>(last.messages) / seconds(at_least_1ns(last.time - posts_.front()));
}

// Finds the highest rate (messages / time) among n^2 windows in a few passes (Dinkelbach,
// Management Science 13, 1967). One pass finds the window with most messages in excess of the
// current rate; the rate of that window is the next current rate, until no window exceeds it.
// perftest tries all n^2 windows.
double Timeline::peak() const {
    if (completions_.empty()) return 0;
    const Nanoseconds begin = posts_.front();
    double rate = average() * 1e-9;  // messages a nanosecond
    for (;;) {
        double max_start_excess = 0, max_excess = 0, next = rate;
        std::size_t start = 0, first = 0;
        for (const Completion& completion : completions_) {
            for (; first < posts_.size() && first < completion.messages; ++first) {
                // How far the posts before this one fall behind the current rate. A window that
                // starts where this is highest has most messages in excess.
                const double start_excess =
                    rate * static_cast<double>(posts_[first] - begin) - static_cast<double>(first);
                if (first == 0 || start_excess > max_start_excess)
                    max_start_excess = start_excess, start = first;
            }
            const Nanoseconds duration = at_least_1ns(completion.time - posts_[start]);
            const auto messages = static_cast<double>(completion.messages - start);
            const double excess = messages - rate * static_cast<double>(duration);
            if (excess > max_excess)
                max_excess = excess, next = messages / static_cast<double>(duration);
        }
        if (next <= rate) return rate * 1e9;
        rate = next;
    }
}

}  // namespace assay::rdma
