// The index of one file's writes (index.hpp). An extent is a range of bytes of one write; a run is
// many blocks of one size at a constant stride.
//
// Extents are in two levels, as in a log-structured merge tree: insertions go into the ordered map
// recent_, and compact() merges it into the vector sorted_, which is searched faster and takes less
// memory. A lookup searches both, all runs, and the runs that still grow.
#include "storage/store/index.hpp"

#include <algorithm>
#include <iterator>

namespace assay::storage {
namespace {

constexpr std::uint64_t min_run_blocks = 16;      // fewer blocks are cheaper as extents
constexpr std::size_t max_runs = 64;              // a lookup visits all of them
constexpr std::size_t min_recent_extents = 4096;  // fewer are not worth a compaction
constexpr std::size_t map_node_bytes = 48;        // estimate: a std::map node without its value

// Whether write a is newer than write b. Of two writes with the same sequence, that of the higher
// rank counts as newer.
bool is_newer(std::uint64_t a, std::uint32_t rank_a, std::uint64_t b, std::uint32_t rank_b) {
    return a != b ? a > b : rank_a > rank_b;
}

}  // namespace

void Index::add(const Record& record, std::uint32_t rank, std::uint64_t position) {
    if (static_cast<RecordKind>(record.kind) == RecordKind::superseded) return;  // no write
    if (static_cast<RecordKind>(record.kind) == RecordKind::truncate) {
        const Truncation added{record.sequence, record.begin};
        // What an older one cuts, a newer one to the same or a smaller size cuts too.
        const auto cuts_all_of = [](const Truncation& newer, const Truncation& older) {
            return older.sequence <= newer.sequence && older.size >= newer.size;
        };
        if (std::ranges::any_of(truncations_, [&](auto& old) { return cuts_all_of(old, added); }))
            return;
        std::erase_if(truncations_, [&](auto& old) { return cuts_all_of(added, old); });
        truncations_.push_back(added);
        return;
    }
    Run run{record.begin, record.length,   record.stride,   record.count, record.ring_offset,
            position,     record.sequence, record.sequence, rank,         1};
    if (static_cast<RecordKind>(record.kind) == RecordKind::tombstone) run.rank = file_system_rank;
    if (run.count > 1 || run.rank == file_system_rank) return add(run);
    // A record of one block extends the rank's growing run if it follows it in the rings and lies
    // one stride further in the file. The second block sets the stride.
    run.stride = run.length;
    const auto it = growing_.find(rank);
    if (it == growing_.end()) {
        growing_.emplace(rank, run);
        return;
    }
    Run& growing = it->second;
    const bool follows = run.length == growing.length &&
                         run.ring_offset == growing.ring_offset + growing.count * growing.length &&
                         position == growing.first_record + growing.count;
    if (follows && run.begin > growing.begin) {
        if (growing.count == 1 && run.begin - growing.begin >= run.length)
            growing.stride = run.begin - growing.begin;
        if (run.begin == growing.begin + growing.count * growing.stride) {
            ++growing.count;
            ++growing.records;
            growing.newest = run.newest;
            return;
        }
        if (growing.count == 1) growing.stride = growing.length;
    }
    // The record begins a new run.
    add(growing);
    growing = run;
}

void Index::add(const Run& run) {
    if (run.count < min_run_blocks) return split(run);
    runs_.push_back(run);
    if (runs_.size() <= max_runs) return;
    // There are too many runs: the one with the fewest blocks becomes extents.
    const auto shortest = std::min_element(
        runs_.begin(), runs_.end(), [](const Run& a, const Run& b) { return a.count < b.count; });
    const Run old = *shortest;
    runs_.erase(shortest);
    split(old);
}

void Index::split(const Run& run) {
    for (std::uint64_t k = 0; k < run.count; ++k) insert(block_of(run, k, true));
}

// One block of a run. Its sequence is looked up if it is needed and the run's records have
// different ones.
Index::Extent Index::block_of(const Run& run, std::uint64_t block, bool needs_sequence) const {
    const std::uint64_t begin = run.begin + block * run.stride;
    Extent extent{begin,      begin + run.length, run.ring_offset + block * run.length,
                  run.newest, run.rank,           true};
    if (!needs_sequence || run.records == 1 || run.oldest == run.newest) return extent;
    const WriteSequence sequence = sequence_of_(run, block);
    extent.sequence = sequence.value;
    extent.is_certain = sequence.is_known;
    return extent;
}

// Inserts into recent_, whose extents stay disjoint: bytes of older extents are replaced, bytes of
// newer ones are cut out of `extent`. An extent behind all others goes straight into sorted_.
void Index::insert(Extent extent) {
    if (recent_.empty() && (sorted_.empty() || sorted_.back().end <= extent.begin)) {
        sorted_.push_back(extent);
        return;
    }
    auto it = recent_.lower_bound(extent.begin);
    if (it != recent_.begin() && std::prev(it)->second.end > extent.begin) --it;
    while (extent.begin < extent.end && it != recent_.end() && it->second.begin < extent.end) {
        Extent old = it->second;
        if (is_newer(old.sequence, old.rank, extent.sequence, extent.rank)) {
            if (extent.begin < old.begin) {
                Extent part = extent;
                part.end = old.begin;
                recent_.emplace(part.begin, part);
            }
            if (old.end > extent.begin) {
                extent.ring_offset += old.end - extent.begin;
                extent.begin = old.end;
            }
            ++it;
            continue;
        }
        it = recent_.erase(it);
        if (old.begin < extent.begin) {
            Extent part = old;
            part.end = extent.begin;
            recent_.emplace(part.begin, part);
        }
        if (old.end > extent.end) {
            old.ring_offset += extent.end - old.begin;
            old.begin = extent.end;
            it = recent_.emplace(old.begin, old).first;
        }
    }
    if (extent.begin < extent.end) recent_.emplace(extent.begin, extent);
    if (recent_.size() > min_recent_extents + sorted_.size() / 8) compact();
}

// Merges recent_ into sorted_ in one pass over both; where two overlap, the newer wins.
void Index::compact() {
    std::vector<Extent> merged;
    merged.reserve(sorted_.size() + recent_.size());
    auto append = [&](const Extent& extent) {
        if (extent.begin < extent.end) merged.push_back(extent);
    };
    std::size_t k = 0;
    Extent older{};
    bool has_older = false;
    auto next_older = [&] {
        has_older = k < sorted_.size();
        if (has_older) older = sorted_[k++];
    };
    next_older();
    for (auto& [begin, recent] : recent_) {
        Extent newer_extent = recent;
        while (has_older && older.end <= newer_extent.begin) append(older), next_older();
        while (has_older && older.begin < newer_extent.end) {
            if (is_newer(older.sequence, older.rank, newer_extent.sequence, newer_extent.rank)) {
                Extent part = newer_extent;
                part.end = std::min(newer_extent.end, older.begin);
                if (part.begin < part.end) append(part);
                if (older.end >= newer_extent.end) {
                    newer_extent.begin = newer_extent.end;
                    break;
                }
                newer_extent.ring_offset += older.end - newer_extent.begin;
                newer_extent.begin = older.end;
                append(older);
                next_older();
            } else {
                Extent part = older;
                part.end = std::min(older.end, newer_extent.begin);
                append(part);
                if (older.end > newer_extent.end) {
                    older.ring_offset += newer_extent.end - older.begin;
                    older.begin = newer_extent.end;
                    break;
                }
                next_older();
            }
        }
        append(newer_extent);
    }
    while (has_older) append(older), next_older();
    sorted_ = std::move(merged);
    recent_.clear();
}

bool Index::is_truncated(std::uint64_t sequence, std::uint64_t offset) const {
    for (const auto& truncation : truncations_)
        if (truncation.sequence > sequence && offset >= truncation.size) return true;
    return false;
}

std::uint64_t Index::end_of(std::uint64_t sequence, std::uint64_t end) const {
    for (const auto& truncation : truncations_)
        if (truncation.sequence > sequence) end = std::min(end, truncation.size);
    return end;
}

// The last block of a run is its newest and its furthest one.
std::uint64_t Index::end() const {
    std::uint64_t furthest = 0;
    const auto add = [&](std::uint64_t sequence, std::uint64_t end) {
        furthest = std::max(furthest, end_of(sequence, end));
    };
    for (const auto& run : runs_) add(run.newest, run.end());
    for (const auto& [rank, run] : growing_) add(run.newest, run.end());
    for (const auto& extent : sorted_) add(extent.sequence, extent.end);
    for (const auto& [begin, extent] : recent_) add(extent.sequence, extent.end);
    return furthest;
}

// Makes `candidate` the answer if it covers `offset` and is newer than `best`. Cuts the answer's
// end at either edge of a candidate, where another one may be the newest.
void Index::update_if_newer(Lookup& best, std::uint64_t offset, const Extent& candidate) const {
    if (candidate.begin > offset) {
        best.end = std::min(best.end, candidate.begin);
        return;
    }
    if (candidate.end <= offset) return;
    best.end = std::min(best.end, candidate.end);
    if (best.has_data && !is_newer(candidate.sequence, candidate.rank, best.sequence, best.rank))
        return;
    best.has_data = true;
    best.rank = candidate.rank;
    best.sequence = candidate.sequence;
    best.ring_offset = candidate.ring_offset + (offset - candidate.begin);
}

Lookup Index::find(std::uint64_t offset, std::uint64_t end, bool certain) {
    Lookup best;
    best.end = end;
    auto add_candidate = [&](const Extent& candidate) {
        // Of a write that is left out the edges count all the same.
        if (certain && !candidate.is_certain && candidate.begin <= offset) {
            if (candidate.end > offset) best.end = std::min(best.end, candidate.end);
        } else {
            update_if_newer(best, offset, candidate);
        }
    };
    auto add_candidates_of_run = [&](const Run& run) {
        if (offset >= run.end()) return;
        // Only the last block that begins at or before the offset can cover it. The block after it
        // only limits the answer's end, so its sequence is not looked up: that would read a record.
        const std::uint64_t block = offset <= run.begin ? 0 : (offset - run.begin) / run.stride;
        for (std::uint64_t k = block; k < std::min(block + 2, run.count); ++k) {
            const std::uint64_t begin = run.begin + k * run.stride;
            if (begin >= best.end) break;
            add_candidate(block_of(run, k, begin <= offset));
        }
    };
    for (const auto& run : runs_) add_candidates_of_run(run);
    for (const auto& [rank, run] : growing_) add_candidates_of_run(run);
    if (!sorted_.empty()) {
        auto from = std::upper_bound(sorted_.begin(), sorted_.end(), offset,
                                     [](std::uint64_t a, const Extent& b) { return a < b.begin; });
        if (from != sorted_.begin()) add_candidate(*std::prev(from));
        if (from != sorted_.end()) add_candidate(*from);
    }
    if (!recent_.empty()) {
        auto from = recent_.upper_bound(offset);
        if (from != recent_.begin()) add_candidate(std::prev(from)->second);
        if (from != recent_.end()) add_candidate(from->second);
    }
    // Bytes that a later truncation has removed are read from the file system.
    for (const auto& truncation : truncations_)
        if (truncation.size > offset) best.end = std::min(best.end, truncation.size);
    if (best.has_data && is_truncated(best.sequence, offset)) best.has_data = false;
    return best;
}

std::size_t Index::bytes() const {
    return runs_.capacity() * sizeof(Run) + growing_.size() * (sizeof(Run) + map_node_bytes) +
           sorted_.capacity() * sizeof(Extent) +
           recent_.size() * (sizeof(Extent) + map_node_bytes) +
           truncations_.capacity() * sizeof(Truncation);
}

}  // namespace assay::storage
