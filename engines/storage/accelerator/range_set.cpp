// Sorted, disjoint byte ranges in a vector of limited length. Ranges beyond the limit are merged
// into one covering range, `rest_`.
#include "storage/accelerator/range_set.hpp"

#include <algorithm>

namespace assay::storage {

void RangeSet::add(std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return;
    // Most writes are appended behind the previous one, so the last range is tried first.
    const bool appends = ranges_.empty() || ranges_.back().begin <= begin;
    auto first = appends && !ranges_.empty() && ranges_.back().end >= begin
                     ? ranges_.end() - 1
                     : std::lower_bound(ranges_.begin(), ranges_.end(), begin,
                                        [](const Range& range, std::uint64_t offset) {
                                            return range.end < offset;
                                        });
    auto last = first;
    Range merged{begin, end};
    for (; last != ranges_.end() && last->begin <= end; ++last) {
        merged.begin = std::min(merged.begin, last->begin);
        merged.end = std::max(merged.end, last->end);
    }
    if (first != last) {
        *first = merged;
        ranges_.erase(first + 1, last);
    } else if (ranges_.size() < max_ranges) {
        ranges_.insert(first, merged);
    } else {
        rest_ = rest_.end ? Range{std::min(rest_.begin, begin), std::max(rest_.end, end)} : merged;
    }
}

void RangeSet::add(const std::vector<Range>& ranges) {
    for (const auto& range : ranges) add(range.begin, range.end);
}

void RangeSet::merge(const RangeSet& other) {
    add(other.ranges_);
    if (!other.rest_.end) return;
    if (!rest_.end) rest_ = other.rest_;
    rest_ = {std::min(rest_.begin, other.rest_.begin), std::max(rest_.end, other.rest_.end)};
}

void RangeSet::remove(const std::vector<Range>& ranges) {
    RangeSet remaining;
    auto cut = ranges.begin();
    for (const auto& range : possible()) {
        std::uint64_t begin = range.begin;
        while (cut != ranges.end() && cut->end <= begin) ++cut;
        for (auto next = cut; next != ranges.end() && next->begin < range.end; ++next) {
            remaining.add(begin, next->begin);
            begin = std::max(begin, next->end);
        }
        remaining.add(begin, range.end);
    }
    *this = std::move(remaining);
}

void RangeSet::truncate(std::uint64_t size) {
    std::erase_if(ranges_, [=](const Range& range) { return range.begin >= size; });
    if (!ranges_.empty()) ranges_.back().end = std::min(ranges_.back().end, size);
    rest_.end = std::min(rest_.end, size);
    if (rest_.begin >= rest_.end) rest_ = {0, 0};
}

void RangeSet::clear() { *this = {}; }

std::vector<Range> RangeSet::possible() const {
    if (!rest_.end) return ranges_;
    std::vector<Range> all;
    Range merged = rest_;
    for (const auto& range : ranges_) {
        const bool is_separate = range.end < merged.begin || range.begin > merged.end;
        if (is_separate) all.push_back(range);
        else merged = {std::min(merged.begin, range.begin), std::max(merged.end, range.end)};
    }
    const auto position =
        std::lower_bound(all.begin(), all.end(), merged,
                         [](const Range& a, const Range& b) { return a.begin < b.begin; });
    all.insert(position, merged);
    return all;
}

}  // namespace assay::storage
