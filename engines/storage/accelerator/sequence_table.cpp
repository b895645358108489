// A table of pairs (position, sequence), sorted by position.
#include "storage/accelerator/sequence_table.hpp"

#include <algorithm>

namespace assay::storage {

void SequenceTable::add(std::uint64_t position, std::uint64_t sequence) {
    positions_.push_back(position);
    sequences_.push_back(sequence);
}

std::optional<std::uint64_t> SequenceTable::find(std::uint64_t position) const {
    const auto it = std::lower_bound(positions_.begin(), positions_.end(), position);
    if (it == positions_.end() || *it != position) return std::nullopt;
    return sequences_[static_cast<std::size_t>(it - positions_.begin())];
}

// A tombstone has the sequence of older data, so the sequences are not sorted: only entries at the
// beginning are dropped.
void SequenceTable::drop_before(std::uint64_t sequence) {
    if (positions_.size() < drop_threshold_) return;
    const auto first_kept =
        std::find_if(sequences_.begin(), sequences_.end(),
                     [sequence](std::uint64_t entry) { return entry >= sequence; });
    positions_.erase(positions_.begin(), positions_.begin() + (first_kept - sequences_.begin()));
    sequences_.erase(sequences_.begin(), first_kept);
    positions_.shrink_to_fit();
    sequences_.shrink_to_fit();
    drop_threshold_ = std::max(min_drop_size, 2 * positions_.size());
}

}  // namespace assay::storage
