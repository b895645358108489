// Computes a node's progress from the counters of its ranks' rings (RankHead) and the errors of its
// files.
#include "storage/store/progress.hpp"

#include <algorithm>
#include <cerrno>
#include <vector>

#include "storage/store/durability.hpp"

namespace assay::storage {

namespace {

// The sequence of the record whose number is in `counter`; 2^64 - 1 if it is not published yet.
std::uint64_t sequence_at(const Store& store, std::uint32_t rank,
                          const std::atomic<std::uint64_t>& counter) {
    const auto& head = store.head(rank);
    for (;;) {
        const std::uint64_t position = counter.load(std::memory_order_acquire);
        if (position >= head.tail.load(std::memory_order_acquire)) return ~0ull;
        const std::uint64_t sequence = store.record(rank, position).sequence;
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (head.first_record.load(std::memory_order_acquire) <= position)
            return sequence;  // else the record was overwritten meanwhile
    }
}

// If a write takes longer than this from its announcement (RankHead::pending) to its record,
// horizon() checks whether its process has ended.
constexpr std::uint64_t announce_limit_ns = 1'000'000'000;

// Lowers the progress to that of the files that other nodes use too and that are not durable.
void subtract_shared_files(const Store& store, Progress& progress) {
    for (const auto k : store.assigned_slots()) {
        const auto& file = store.file(k);
        if (file.deleted.load() || !file.shared.load()) continue;
        const std::uint64_t durable = file.durable.load();
        if (file.error.load()) {
            progress.failed = file.error.load();
            progress.drained = std::min(progress.drained, durable);
        }
        if (file.error.load() || needs_sync(file))
            progress.synced = std::min(progress.synced, durable);
    }
}

}  // namespace

// A write that begins later gets a later sequence; one that has begun has set `pending`.
std::uint64_t horizon(const Store& store) {
    const std::uint64_t now = store.now();
    std::uint64_t before = now;
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank) {
        const auto& head = store.head(rank);
        const auto pending = head.pending.load(std::memory_order_seq_cst);
        if (!pending || (pending + announce_limit_ns < now && store.has_ended(head.pid.load())))
            continue;
        before = std::min(before, pending);
    }
    return before;
}

std::uint64_t drained_before(const Store& store) {
    std::uint64_t before = horizon(store);
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank)
        before = std::min(before, sequence_at(store, rank, store.head(rank).drained));
    return before;
}

std::uint64_t written_before(const Store& store, std::uint32_t file) {
    const auto& slot = store.file(file);
    std::uint64_t before = horizon(store);
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank) {
        const auto& head = store.head(rank);
        const std::uint64_t tail = head.tail.load(std::memory_order_acquire);
        for (auto k = head.drained.load(std::memory_order_acquire); k < tail; ++k)
            if (const Record& record = store.record(rank, k); record.file == file)
                before = std::min(before, record.sequence);
    }
    // The drain sets the error before `drained`.
    return slot.error.load() ? std::min(before, slot.durable.load()) : before;
}

namespace {

// The end of the file's data in the rings that are not drained.
std::uint64_t undrained_end(const Store& store, std::uint32_t file) {
    std::uint64_t end = 0;
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank) {
        const auto& head = store.head(rank);
        const std::uint64_t tail = head.tail.load(std::memory_order_acquire);
        for (auto k = head.drained.load(std::memory_order_acquire); k < tail; ++k)
            if (const Record record = store.record(rank, k);
                record.file == file && static_cast<RecordKind>(record.kind) == RecordKind::data)
                end = std::max(end,
                               record.begin + (record.count - 1) * record.stride + record.length);
    }
    return end;
}

// Counts the data of files that are not deleted for which `is_counted(head, position, record)`
// holds, and the files that have such data or for which `has_more(file)` holds.
template <class IsCounted, class HasMore>
StoredData count_data(const Store& store, IsCounted is_counted, HasMore has_more) {
    std::vector<bool> counted(file_slots);
    StoredData result;
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank) {
        const auto& head = store.head(rank);
        const std::uint64_t tail = head.tail.load(std::memory_order_acquire);
        for (auto k = head.first_record.load(std::memory_order_acquire); k < tail; ++k) {
            const Record& record = store.record(rank, k);
            if (record.file >= file_slots || !has_data_of_file(store, record) ||
                !is_counted(head, k, record))
                continue;
            result.bytes += record.length * record.count;
            counted[record.file] = true;
        }
    }
    for (const auto file : store.assigned_slots())
        if (!store.file(file).deleted.load() && has_more(file)) counted[file] = true;
    result.files = static_cast<std::uint32_t>(std::count(counted.begin(), counted.end(), true));
    return result;
}

}  // namespace

void raise_to(std::atomic<std::uint64_t>& value, std::uint64_t least) {
    std::uint64_t current = value.load(std::memory_order_relaxed);
    while (current < least && !value.compare_exchange_weak(current, least)) {
    }
}

void extend_end(FileSlot& file, std::uint64_t end) { raise_to(file.end, end); }

// The drain sets the error before `drained`. A write that is published after the first search may
// have seen the higher end, so the rings are searched again.
void lower_end(const Store& store, std::uint32_t file) {
    auto& slot = store.file(file);
    std::uint64_t known = slot.end.load();
    const std::uint64_t end = undrained_end(store, file);
    if (known <= end || slot.error.load()) return;
    slot.end.compare_exchange_strong(known, end);
    extend_end(slot, undrained_end(store, file));
}

StoredData stored_data(const Store& store) {
    const auto all = [](const RankHead&, std::uint64_t, const Record&) { return true; };
    return count_data(store, all, [](std::uint32_t) { return false; });
}

StoredData pending_data(const Store& store) {
    const auto is_pending = [&](const RankHead& head, std::uint64_t position,
                                const Record& record) {
        return position >= head.drained.load(std::memory_order_acquire) ||
               must_repeat(store.file(record.file), record.sequence);
    };
    const auto is_unsynced = [&](std::uint32_t file) { return needs_sync(store.file(file)); };
    return count_data(store, is_pending, is_unsynced);
}

Progress progress(const Store& store) {
    Progress result{};
    result.now = store.now();
    result.retries = store.superblock().retries.load(std::memory_order_acquire);
    result.horizon = result.oldest = horizon(store);
    result.drained = std::min(result.horizon, drained_before(store));
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank) {
        const auto& head = store.head(rank);
        result.oldest = std::min(result.oldest, sequence_at(store, rank, head.first_record));
        // A rank that resolves conflicts is waited for, however long its file system takes.
        if (const auto resolving = head.resolving.load(std::memory_order_seq_cst)) {
            result.drained = std::min(result.drained, resolving);
            if (store.has_ended(head.pid.load())) result.failed = EIO;
        }
    }
    result.synced = result.drained;
    subtract_shared_files(store, result);
    result.durable = result.synced;
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank) {
        const auto& head = store.head(rank);
        const auto unresolved = head.unresolved.load();
        if (!unresolved) continue;
        result.durable = std::min(result.durable, unresolved);
        if (!head.resolving.load()) result.unresolved = 1;
    }
    return result;
}

void complete_commit(const Store& store) {
    if (!store.superblock().batch_committed.load(std::memory_order_acquire)) return;
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank) {
        auto& head = store.head(rank);
        head.drained.store(head.drained_next.load(), std::memory_order_release);
    }
    store.superblock().batch_committed.store(0, std::memory_order_release);
}

void commit_batch(const Store& store) {
    store.superblock().batch_committed.store(1, std::memory_order_release);
    complete_commit(store);
}

std::uint64_t oldest_except(const Store& store, std::uint32_t rank) {
    std::uint64_t oldest = ~0ull;
    for (std::uint32_t other = 0; other < store.ranks(); ++other)
        if (other != rank)
            oldest = std::min(oldest, sequence_at(store, other, store.head(other).first_record));
    return oldest;
}

}  // namespace assay::storage
