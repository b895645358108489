#include "storage/store/recover.hpp"

#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "storage/store/drain.hpp"

namespace assay::storage {
namespace {

bool sound(const Store& store, std::uint32_t rank, const Record& record) {
    if (record.check != check_of(record) || record.file >= file_slots) return false;
    if (static_cast<Kind>(record.kind) != Kind::data) return true;
    const auto ring = store.head(rank).ring.load();
    return ring && ring <= store.shape().ring_bytes &&
           record.place % ring + record.length * record.count <= ring;
}

bool there(const FileSlot& slot) {
    struct stat about{};
    return stat(slot.path, &about) == 0 && about.st_ino == slot.inode;
}

template <class Each>
void each_record(const Store& store, Each each) {
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank) {
        const auto& head = store.head(rank);
        const auto from = head.drained.load(),
                   to = std::min(head.tail.load(), from + store.shape().record_slots);
        for (auto k = from; k < to; ++k) each(rank, store.record(rank, k));
    }
}

}  // namespace

Contents contents(const Store& store) {
    Contents found;
    std::map<std::uint32_t, Leftover> files;
    each_record(store, [&](std::uint32_t rank, const Record& record) {
        if (!sound(store, rank, record)) {
            ++found.torn;
            return;
        }
        const auto& slot = store.file(record.file);
        if (static_cast<Kind>(record.kind) != Kind::data || slot.generation != record.generation ||
            slot.gone)
            return;
        auto& file = files[record.file];
        if (!file.records)
            file.path.assign(slot.path, strnlen(slot.path, path_limit)), file.gone = !there(slot);
        ++file.records;
        file.bytes += record.length * record.count;
    });
    for (auto& [slot, file] : files) {
        found.records += file.records;
        found.bytes += file.bytes;
        found.files.push_back(std::move(file));
    }
    return found;
}

bool in_use(const Store& store) { return flock(store.descriptor(), LOCK_EX | LOCK_NB) != 0; }

Contents recover(Store& store, unsigned threads, int& error) {
    Contents found = contents(store);
    std::uint64_t latest = 0;
    each_record(store, [&](std::uint32_t rank, Record& record) {
        if (!sound(store, rank, record)) record.kind = record.count = 0, record.sequence = latest;
        latest = std::max(latest, record.sequence);
    });
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank) store.head(rank).pending = 0;
    store.super().drain_failed = 0;
    store.super().drain_lock = 0;
    store.no_earlier(latest + 1);  // the clock may have begun anew
    Drain drain(store, threads);
    error = 0;
    for (std::uint32_t rank = 0; rank < store.ranks() && !error; ++rank)
        if (!drain.finish(rank, store.head(rank).tail.load()))
            error = static_cast<int>(store.super().drain_failed.load());
    return found;
}

}  // namespace assay::storage
