#include "storage/store/durability.hpp"

#include <algorithm>
#include <cstring>

#include "storage/store/progress.hpp"

namespace assay::storage {

bool belongs_to_file(const Store& store, const Record& record) {
    const auto& file = store.file(record.file);
    return file.generation.load() == record.generation && !file.deleted.load();
}

bool has_data_of_file(const Store& store, const Record& record) {
    return static_cast<RecordKind>(record.kind) == RecordKind::data &&
           belongs_to_file(store, record);
}

// Data that were evicted may be newer than some that are not settled, so these stay as they are.
std::uint64_t repeated_from(const FileSlot& file) {
    const std::uint64_t durable = file.durable.load();
    if (!file.repeats_unsettled.load()) return durable;
    const std::uint64_t evicted = file.evicted_newest.load();
    return std::min(durable, std::max(file.settled.load(), evicted ? evicted + 1 : 0));
}

bool may_evict(const Store& store, const Record& record) {
    return static_cast<RecordKind>(record.kind) == RecordKind::tombstone ||
           !belongs_to_file(store, record) ||
           record.sequence < store.file(record.file).durable.load();
}

bool is_written(const Store& store, std::uint32_t file) {
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank) {
        const auto& head = store.head(rank);
        const std::uint64_t tail = head.tail.load(std::memory_order_acquire);
        for (auto k = head.drained.load(std::memory_order_acquire); k < tail; ++k)
            if (store.record(rank, k).file == file) return false;
    }
    return store.file(file).error.load() == 0;
}

bool is_durable(const Store& store, std::uint32_t file) {
    return is_written(store, file) && !needs_sync(store.file(file));
}

// A volatile store is lost in a power failure. So if it exists, the page cache has what was written
// to the file. A persistent store survives a power failure, after which a file may have only the
// data that were fsynced.
bool is_pending(const Store& store, std::uint32_t rank, std::uint64_t position) {
    const Record& record = store.record(rank, position);
    if (!has_data_of_file(store, record)) return false;
    const auto& file = store.file(record.file);
    if (store.persistent()) return record.sequence >= file.durable.load();
    return position >= store.head(rank).drained.load() || must_repeat(file, record.sequence);
}

bool may_remove(const Store& store) {
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank)
        if (store.head(rank).drained.load() != store.head(rank).tail.load() ||
            store.head(rank).unresolved.load())
            return false;
    for (const auto k : store.assigned_slots()) {
        const auto& file = store.file(k);
        if (!file.deleted.load() && (file.error.load() || needs_sync(file))) return false;
    }
    return true;
}

std::string describe_error(const Store& store) {
    for (const auto k : store.assigned_slots()) {
        const auto& file = store.file(k);
        const auto error = static_cast<int>(file.error.load());
        if (error && !file.deleted.load())
            return std::string(file.path, strnlen(file.path, path_limit)) + ": " +
                   std::strerror(error);
    }
    return {};
}

void note_draining(FileSlot& file, std::uint64_t newest) {
    file.drained_before = std::max(file.drained_before.load(), newest + 1);
}

void note_synced(const Store& store, FileSlot& file, std::uint64_t before) {
    file.durable = std::max(file.durable.load(), before);
    store.persist(&file, 2 * cache_line);
}

void note_error(const Store& store, FileSlot& file, int error) {
    file.error.store(static_cast<std::uint32_t>(error), std::memory_order_seq_cst);
    store.persist(&file, 3 * cache_line);
}

}  // namespace assay::storage
