// A set of numbers as disjoint ranges [begin, end): packet numbers that arrived, bytes that were
// acknowledged.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace assay::udp {

class Ranges {
public:
    // Returns how many of the numbers were not in the set.
    std::uint64_t add(std::uint64_t begin, std::uint64_t end) {
        if (begin >= end) return 0;
        std::uint64_t added = end - begin;
        std::uint64_t low = begin, high = end;  // of the joined range
        auto next = ranges_.upper_bound(begin);
        if (next != ranges_.begin() && std::prev(next)->second >= begin) --next;
        while (next != ranges_.end() && next->first <= end) {
            const std::uint64_t first = std::max(begin, next->first),
                                last = std::min(end, next->second);
            if (last > first) added -= last - first;
            low = std::min(low, next->first);
            high = std::max(high, next->second);
            next = ranges_.erase(next);
        }
        ranges_[low] = high;
        return added;
    }
    bool contains(std::uint64_t begin, std::uint64_t end) const {
        const auto next = ranges_.upper_bound(begin);
        return next != ranges_.begin() && std::prev(next)->second >= end;
    }
    std::size_t count() const { return ranges_.size(); }
    const std::map<std::uint64_t, std::uint64_t>& ranges() const { return ranges_; }
    void remove_lowest() { ranges_.erase(ranges_.begin()); }

private:
    std::map<std::uint64_t, std::uint64_t> ranges_;  // begin to end
};

}  // namespace assay::udp
