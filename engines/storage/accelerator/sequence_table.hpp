// The sequences of the records of a rank on another node, by their position in its ring. A sequence
// is the time of a write on the job's clock.
//
// Entries of records that were evicted from that ring are dropped. So the table is at most about
// twice as long as the ring, however long the program runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace assay::storage {

class SequenceTable {
public:
    // Positions must be added in ascending order.
    void add(std::uint64_t position, std::uint64_t sequence);
    // The sequence of the record; none if it was not added or was dropped.
    std::optional<std::uint64_t> find(std::uint64_t position) const;
    // Drops the entries before the first one whose sequence is at least `sequence`: their records
    // are no longer in the ring. Does nothing until the table has doubled in size.
    void drop_before(std::uint64_t sequence);
    std::size_t size() const { return positions_.size(); }

private:
    static constexpr std::size_t min_drop_size = 4096;  // shorter tables are not shortened
    std::vector<std::uint64_t> positions_, sequences_;
    std::size_t drop_threshold_ = min_drop_size;
};

}  // namespace assay::storage
