// A table of pairs (ring position, sequence), sorted by ring position.
#include "storage/accelerator/sequence_table.hpp"

#include <algorithm>

namespace assay::storage {

void SequenceTable::add(std::uint64_t ring_position, std::uint64_t sequence) {
    ring_positions_.push_back(ring_position);
    sequences_.push_back(sequence);
}

std::optional<std::uint64_t> SequenceTable::find(std::uint64_t ring_position) const {
    if (ring_positions_.empty() || ring_position < ring_positions_.front()) return std::nullopt;
    // Positions ascend, so this one is no further from the first than the difference says; it is
    // just there unless the rank has written other files meanwhile.
    const std::uint64_t furthest = ring_position - ring_positions_.front();
    if (furthest < ring_positions_.size() && ring_positions_[furthest] == ring_position)
        return sequences_[furthest];
    const auto it = std::lower_bound(ring_positions_.begin(), ring_positions_.end(), ring_position);
    if (it == ring_positions_.end() || *it != ring_position) return std::nullopt;
    return sequences_[static_cast<std::size_t>(it - ring_positions_.begin())];
}

// A tombstone, which marks an eviction, has the sequence of older data, so the sequences are not
// sorted: only entries at the beginning are dropped.
void SequenceTable::drop_before(std::uint64_t sequence) {
    if (ring_positions_.size() < drop_threshold_) return;
    const auto first_kept =
        std::find_if(sequences_.begin(), sequences_.end(),
                     [sequence](std::uint64_t entry) { return entry >= sequence; });
    ring_positions_.erase(ring_positions_.begin(),
                          ring_positions_.begin() + (first_kept - sequences_.begin()));
    sequences_.erase(sequences_.begin(), first_kept);
    ring_positions_.shrink_to_fit();
    sequences_.shrink_to_fit();
    drop_threshold_ = std::max(min_drop_size, 2 * ring_positions_.size());
}

}  // namespace assay::storage
