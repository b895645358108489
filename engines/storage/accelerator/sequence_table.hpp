// The sequences of the records of a rank on another node, by their position in its ring.
//
// Records that have left that ring are forgotten, as those of this node's rings are. So the table
// is at most about twice as long as the ring, however long the program runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace assay::storage {

class SequenceTable {
public:
    // Positions only grow.
    void add(std::uint64_t position, std::uint64_t sequence);
    // None: the record is not known, or not any more.
    std::optional<std::uint64_t> find(std::uint64_t position) const;
    // No record before the first one of this sequence or later is left in the ring. Cheap where
    // little could be forgotten.
    void forget_before(std::uint64_t sequence);
    std::size_t size() const { return positions_.size(); }

private:
    static constexpr std::size_t smallest = 4096;  // shorter tables are left alone
    std::vector<std::uint64_t> positions_, sequences_;
    std::size_t forget_at_ = smallest;
};

}  // namespace assay::storage
