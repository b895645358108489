#include "node/rdma/rates.hpp"

#include <algorithm>

namespace assay::rdma {
namespace {

// Two readings of the clock may be the same; nothing takes no time.
Nanoseconds at_least_one(Nanoseconds duration) { return std::max<Nanoseconds>(duration, 1); }

}  // namespace

double Timeline::average() const {
    if (completions_.empty()) return 0;
    const Completion& last = completions_.back();
    return static_cast<double>(last.messages) / seconds(at_least_one(last.at - posts_.front()));
}

// The best ratio messages / time over n^2 windows, in a few passes (Dinkelbach, Management Science
// 13, 1967): of a rate that some window reaches, one pass finds the window that is furthest above
// it, whose own rate is the next to be tried, until no window is above. perftest tries all n^2.
double Timeline::peak() const {
    if (completions_.empty()) return 0;
    const Nanoseconds begin = posts_.front();
    double rate = average() * 1e-9;  // messages a nanosecond
    for (;;) {
        double best_start = 0, furthest = 0, next = rate;
        std::size_t start = 0, first = 0;
        for (const Completion& completion : completions_) {
            for (; first < posts_.size() && first < completion.messages; ++first) {
                const double value =
                    rate * static_cast<double>(posts_[first] - begin) - static_cast<double>(first);
                if (first == 0 || value > best_start) best_start = value, start = first;
            }
            const Nanoseconds duration = at_least_one(completion.at - posts_[start]);
            const auto messages = static_cast<double>(completion.messages - start);
            const double above = messages - rate * static_cast<double>(duration);
            if (above > furthest) furthest = above, next = messages / static_cast<double>(duration);
        }
        if (next <= rate) return rate * 1e9;
        rate = next;
    }
}

}  // namespace assay::rdma
