// Selects the data of a batch from the records of all ranks, and cuts overlapping ranges so that
// the newest write of each byte remains. Batches are explained in batch.hpp, records and sequences
// in layout.hpp.
#include "storage/store/batch.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <utility>

#include "storage/store/durability.hpp"
#include "storage/store/progress.hpp"

namespace assay::storage {
namespace {

constexpr std::size_t max_pieces = 1u << 20;  // also the limit of the records of a batch

// Calls visit(rank, record) for the records of a kind in the rings of all ranks: from the drained
// ones on, or (`all`) from the first. A rank may evict records meanwhile, so a record counts only
// if it is still there after it was read: truncations and superseded records leave a ring after the
// older data that they concern.
template <class Visit>
void for_each_record(const Store& store, RecordKind kind, bool all, const Visit& visit) {
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank) {
        const auto& head = store.head(rank);
        const std::uint64_t tail = head.tail.load(std::memory_order_acquire);
        for (auto k = all ? head.first_record.load() : head.drained.load(); k < tail; ++k) {
            const Record record = store.record(rank, k);
            std::atomic_thread_fence(std::memory_order_acquire);
            if (static_cast<RecordKind>(record.kind) == kind &&
                head.first_record.load(std::memory_order_acquire) <= k)
                visit(rank, record);
        }
    }
}

class Truncations {
public:
    Truncations(const Store& store, bool all) {
        for_each_record(store, RecordKind::truncate, all, [&](std::uint32_t, const Record& record) {
            truncations_.push_back(record);
        });
    }
    // The file offset from which on newer truncations cut the record off.
    std::uint64_t limit_of(const Record& record) const {
        std::uint64_t limit = ~0ull;
        for (const Record& truncation : truncations_)
            if (truncation.file == record.file && truncation.generation == record.generation &&
                truncation.sequence > record.sequence)
                limit = std::min(limit, truncation.begin);
        return limit;
    }

private:
    std::vector<Record> truncations_;
};

// Appends a piece for each block of the record; bytes from the file offset `limit` on are cut off.
// Returns the number of bytes of the record.
std::size_t append_pieces(std::vector<Piece>& pieces, const Store& store, std::uint32_t rank,
                          const Record& record, std::uint64_t limit) {
    for (std::uint64_t k = 0; k < record.count; ++k) {
        const std::uint64_t begin = record.begin + k * record.stride;
        const std::uint64_t end = std::min(begin + record.length, limit);
        if (begin < end)
            pieces.push_back({record.file, rank, begin, end,
                              store.data(rank, record.ring_offset + k * record.length),
                              record.sequence});
    }
    return record.length * record.count;
}

// Whether the file has data of other nodes that are newer than some of this node's.
bool has_superseded(const Store& store, const std::vector<Piece>& pieces) {
    return std::any_of(pieces.begin(), pieces.end(), [&](const Piece& piece) {
        return store.file(piece.file).superseded.load() != 0;
    });
}

// Appends the bytes of the superseded records as pieces without data.
void append_superseded(std::vector<Piece>& pieces, const Store& store, bool all) {
    if (!has_superseded(store, pieces)) return;
    for_each_record(
        store, RecordKind::superseded, all, [&](std::uint32_t rank, const Record& record) {
            if (store.file(record.file).generation.load() != record.generation) return;
            for (std::uint64_t block = 0; block < record.count; ++block) {
                const std::uint64_t begin = record.begin + block * record.stride;
                pieces.push_back(
                    {record.file, rank, begin, begin + record.length, nullptr, record.sequence});
            }
        });
}

// Sorts the pieces by file offset; where pieces overlap, the newest stays. Of two with the same
// sequence data stay.
void keep_newest(std::vector<Piece>& pieces) {
    auto by_offset = [](const Piece& a, const Piece& b) {
        return a.file != b.file ? a.file < b.file : a.begin < b.begin;
    };
    std::stable_sort(pieces.begin(), pieces.end(), by_offset);
    bool overlap = false;
    for (std::size_t k = 1; k < pieces.size() && !overlap; ++k)
        overlap = pieces[k].file == pieces[k - 1].file && pieces[k].begin < pieces[k - 1].end;
    if (!overlap) return;
    std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
        if (a.sequence != b.sequence) return a.sequence < b.sequence;
        return (a.data != nullptr) != (b.data != nullptr) ? !a.data : a.rank < b.rank;
    });
    std::map<std::pair<std::uint32_t, std::uint64_t>, Piece> newest;  // disjoint, by file and begin
    for (const auto& piece : pieces) {
        auto it = newest.lower_bound({piece.file, piece.begin});
        if (it != newest.begin() && std::prev(it)->second.file == piece.file &&
            std::prev(it)->second.end > piece.begin)
            --it;
        while (it != newest.end() && it->second.file == piece.file &&
               it->second.begin < piece.end) {
            const Piece old = it->second;
            it = newest.erase(it);
            if (old.begin < piece.begin) {
                Piece part = old;
                part.end = piece.begin;
                newest.emplace(std::pair{part.file, part.begin}, part);
            }
            if (old.end > piece.end) {
                Piece part = old;
                if (part.data) part.data += piece.end - old.begin;
                part.begin = piece.end;
                it = newest.emplace(std::pair{part.file, part.begin}, part).first;
            }
        }
        newest.emplace(std::pair{piece.file, piece.begin}, piece);
    }
    pieces.clear();
    for (const auto& [position, piece] : newest) pieces.push_back(piece);
}

// Leaves the newest data of each byte, and none of superseded bytes. `all`: see
// for_each_record().
void select_newest_data(std::vector<Piece>& pieces, const Store& store, bool all) {
    append_superseded(pieces, store, all);
    keep_newest(pieces);
    std::erase_if(pieces, [](const Piece& piece) { return !piece.data; });
}

}  // namespace

Batch next_batch(const Store& store, std::size_t max_bytes) {
    const std::uint32_t ranks = store.ranks();
    Batch batch;
    batch.end_record.resize(ranks);
    const std::uint64_t newest = horizon(store);
    using Next = std::pair<std::uint64_t, std::uint32_t>;  // sequence, rank
    std::priority_queue<Next, std::vector<Next>, std::greater<>> next;
    std::vector<std::uint64_t> tail(ranks);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const auto& head = store.head(rank);
        tail[rank] = head.tail.load(std::memory_order_acquire);
        batch.end_record[rank] = head.drained.load();
        if (batch.end_record[rank] < tail[rank])
            next.push({store.record(rank, batch.end_record[rank]).sequence, rank});
    }
    const Truncations truncations(store, false);
    std::size_t bytes = 0, records = 0;
    while (!next.empty() && next.top().first <= newest && bytes < max_bytes &&
           batch.pieces.size() < max_pieces && records < max_pieces) {
        const auto rank = next.top().second;
        next.pop();
        const Record& record = store.record(rank, batch.end_record[rank]);
        // Durable data are not written again, because newer data of the same bytes may have left
        // the rings. A truncation needs no piece: the file was truncated before its record was
        // published.
        if (!may_evict(store, record)) {
            auto& newest_of_file = batch.newest[record.file];
            newest_of_file = std::max(newest_of_file, record.sequence);
            if (static_cast<RecordKind>(record.kind) == RecordKind::data)
                bytes +=
                    append_pieces(batch.pieces, store, rank, record, truncations.limit_of(record));
        }
        ++records;
        if (++batch.end_record[rank] < tail[rank])
            next.push({store.record(rank, batch.end_record[rank]).sequence, rank});
    }
    batch.takes_records = records != 0;
    select_newest_data(batch.pieces, store, false);
    return batch;
}

std::vector<Piece> pieces_to_repeat(const Store& store, std::uint32_t file) {
    const std::uint64_t from = repeated_from(store.file(file));
    const Truncations truncations(store, true);
    std::vector<Piece> pieces;
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank) {
        const auto& head = store.head(rank);
        const std::uint64_t drained = head.drained.load();
        for (std::uint64_t k = head.first_record.load(); k < drained; ++k) {
            // Another file's record may be evicted meanwhile, so a copy is looked at.
            const Record record = store.record(rank, k);
            if (record.file == file && record.sequence >= from && has_data_of_file(store, record))
                append_pieces(pieces, store, rank, record, truncations.limit_of(record));
        }
    }
    select_newest_data(pieces, store, true);
    return pieces;
}

}  // namespace assay::storage
