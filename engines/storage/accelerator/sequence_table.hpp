// The sequences of the records of a rank on another node, by their ring position: a record's number
// in the rank's ring of records. A record describes a write; its sequence is the time of that write
// on the job's logical clock. A tombstone is a record that marks an eviction: it says that the file
// system has the data.
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
    // Ring positions must be added in ascending order.
    void add(std::uint64_t ring_position, std::uint64_t sequence);
    // The sequence of the record; none if it was not added or was dropped.
    std::optional<std::uint64_t> find(std::uint64_t ring_position) const;
    // Drops the entries before the first one whose sequence is at least `sequence`: their records
    // are no longer in the ring. Does nothing until the table has doubled in size.
    void drop_before(std::uint64_t sequence);
    std::size_t size() const { return ring_positions_.size(); }

private:
    static constexpr std::size_t min_drop_size = 4096;  // shorter tables are not shortened
    std::vector<std::uint64_t> ring_positions_, sequences_;
    std::size_t drop_threshold_ = min_drop_size;
};

}  // namespace assay::storage
