// A set of byte ranges of a file, in limited memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace assay::storage {

// The bytes [begin, end).
struct Range {
    std::uint64_t begin, end;
    bool operator==(const Range&) const = default;
};

// It stores at most `max_ranges` separate ranges exactly. If more are added, certain() has a subset
// of the added bytes, and possible() a superset.
class RangeSet {
public:
    static constexpr std::size_t max_ranges = 8192;

    void add(std::uint64_t begin, std::uint64_t end);
    void add(const std::vector<Range>& ranges);
    void merge(const RangeSet& other);
    // Removes ranges, which must be sorted and disjoint. Bytes that are only in possible() count as
    // members before.
    void remove(const std::vector<Range>& ranges);
    // Removes all bytes from `size` on.
    void truncate(std::uint64_t size);
    void clear();

    bool empty() const { return ranges_.empty() && !rest_.end; }
    // Bytes that are certainly in the set: disjoint ranges, not adjacent, in ascending order.
    const std::vector<Range>& certain() const { return ranges_; }
    // Bytes that may be in the set, in the same form.
    std::vector<Range> possible() const;

private:
    std::vector<Range> ranges_;
    Range rest_{0, 0};  // covers what is not in `ranges_`; {0, 0}: nothing
};

}  // namespace assay::storage
