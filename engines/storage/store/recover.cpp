#include "storage/store/recover.hpp"

#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "storage/store/drain.hpp"

namespace assay::storage {
namespace {

bool is_intact(const Store& store, std::uint32_t rank, const Record& record) {
    if (record.checksum != checksum_of(record) || record.file >= file_slots) return false;
    if (static_cast<RecordKind>(record.kind) != RecordKind::data) return true;
    const auto ring = store.head(rank).ring_bytes.load();
    return ring && ring <= store.layout().ring_bytes &&
           record.ring_offset % ring + record.length * record.count <= ring;
}

bool file_exists(const FileSlot& slot) {
    struct stat info{};
    return stat(slot.path, &info) == 0 && info.st_ino == slot.inode;
}

template <class Visit>
void for_each_record(const Store& store, Visit visit) {
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank) {
        const auto& head = store.head(rank);
        const auto from = head.drained.load(),
                   to = std::min(head.tail.load(), from + store.layout().record_slots);
        for (auto k = from; k < to; ++k) visit(rank, store.record(rank, k));
    }
}

}  // namespace

UndrainedData undrained_data(const Store& store) {
    UndrainedData undrained;
    std::map<std::uint32_t, UndrainedFile> files;
    for_each_record(store, [&](std::uint32_t rank, const Record& record) {
        if (!is_intact(store, rank, record)) {
            ++undrained.torn;
            return;
        }
        const auto& slot = store.file(record.file);
        if (static_cast<RecordKind>(record.kind) != RecordKind::data ||
            slot.generation != record.generation || slot.deleted)
            return;
        auto& file = files[record.file];
        if (!file.records)
            file.path.assign(slot.path, strnlen(slot.path, path_limit)),
                file.gone = !file_exists(slot);
        ++file.records;
        file.bytes += record.length * record.count;
    });
    for (auto& [slot, file] : files) {
        undrained.records += file.records;
        undrained.bytes += file.bytes;
        undrained.files.push_back(std::move(file));
    }
    return undrained;
}

bool in_use(const Store& store) { return flock(store.descriptor(), LOCK_EX | LOCK_NB) != 0; }

UndrainedData recover(Store& store, unsigned threads, int& error) {
    UndrainedData undrained = undrained_data(store);
    std::uint64_t latest = 0;
    for_each_record(store, [&](std::uint32_t rank, Record& record) {
        if (!is_intact(store, rank, record))
            record.kind = record.count = 0, record.sequence = latest;
        latest = std::max(latest, record.sequence);
    });
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank) store.head(rank).pending = 0;
    store.superblock().drain_failed = 0;
    store.superblock().drain_lock = 0;
    store.advance_clock(latest + 1);  // the clock may have restarted
    Drain drain(store, threads);
    error = 0;
    for (std::uint32_t rank = 0; rank < store.ranks() && !error; ++rank)
        if (!drain.finish(rank, store.head(rank).tail.load()))
            error = static_cast<int>(store.superblock().drain_failed.load());
    return undrained;
}

}  // namespace assay::storage
