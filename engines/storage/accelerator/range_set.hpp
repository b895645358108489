// A set of byte ranges of a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace assay::storage {

struct Range {
    std::uint64_t begin, end;
    bool operator==(const Range&) const = default;
};

// Its memory is bounded: of more than `max_ranges` separate ranges only the first are known
// exactly. Then certain() is less than what was added, and possible() is more.
class RangeSet {
public:
    static constexpr std::size_t max_ranges = 8192;

    void add(std::uint64_t begin, std::uint64_t end);
    void add(const std::vector<Range>& ranges);
    void merge(const RangeSet& other);
    // `ranges` as certain() gives them. What was not known exactly counts as in the set before.
    void remove(const std::vector<Range>& ranges);
    // Removes all from `size` on.
    void truncate(std::uint64_t size);
    void clear();

    bool empty() const { return ranges_.empty() && !rest_.end; }
    // Disjoint, not adjacent, in rising order.
    const std::vector<Range>& certain() const { return ranges_; }
    std::vector<Range> possible() const;

private:
    std::vector<Range> ranges_;
    Range rest_{0, 0};  // covers what is not in `ranges_`; {0, 0}: nothing
};

}  // namespace assay::storage
