// Recovery of a store whose job has ended: checks its records, follows renamed files, and writes
// what is left into the file system.
#include "storage/store/recover.hpp"

#include <dirent.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "storage/store/background.hpp"
#include "storage/store/drain.hpp"
#include "storage/store/durability.hpp"
#include "storage/store/file_table.hpp"
#include "storage/store/progress.hpp"

namespace assay::storage {
namespace {

// A file that was modified later than this after the job's last sign of life was modified by
// others.
constexpr std::int64_t grace_ns = 2'000'000'000;

// Whether the store may have data that the file system lacks. A store in the phase `formatting` is
// empty, whatever its heads say; for `clean` and `kept` the file system has all data.
bool holds_data(const Store& store) {
    const Phase phase = store.superblock().phase.load();
    return phase == Phase::active || phase == Phase::detached;
}

// Whether a record is damaged: a power failure may have torn it. Data are only checked if they are
// pending: drained data may have been overwritten in the ring.
bool is_torn(const Store& store, std::uint32_t rank, std::uint64_t position) {
    const Record& record = store.record(rank, position);
    if (!lies_in_file_table_and_ring(store, rank, record)) return true;
    const bool is_used = static_cast<RecordKind>(record.kind) == RecordKind::superseded ||
                         is_pending(store, rank, position);
    return is_used && record.checksum != checksum_of(store, rank, record);
}

// Calls `visit(rank, position, record)` for each record in the rings.
template <class Visit>
void for_each_record(const Store& store, Visit visit) {
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank) {
        const auto& head = store.head(rank);
        const auto tail = head.tail.load();
        const auto slots = store.layout().record_slots;
        auto from = head.first_record.load();
        if (tail > slots) from = std::max(from, tail - slots);
        for (auto k = from; k < tail; ++k) visit(rank, k, store.record(rank, k));
    }
}

// Whether recovery may write to the slot's file.
FileCondition condition_of(const Store& store, const FileSlot& slot) {
    FileStatus status;
    if (slot.path[path_limit - 1] != 0 || read_status(slot.path, status))
        return FileCondition::gone;
    if (!status.regular || !is_same_file(slot, status, store.is_from_earlier_boot()))
        return FileCondition::replaced;
    // Whether known_mtime_ns is that of the job's last modification. Nobody notes that of a direct
    // write.
    const Route route = slot.route.load();
    const bool mtime_is_known = slot.known_mtime_ns.load() && !slot.writing.load() &&
                                !slot.shared.load() && route != Route::direct &&
                                route != Route::left_direct && !store.is_from_earlier_boot();
    if (mtime_is_known)
        return status.mtime_ns == slot.known_mtime_ns.load() ? FileCondition::ready
                                                             : FileCondition::changed;
    const std::int64_t last_ns = store.superblock().alive_ns.load() + grace_ns +
                                 std::max<std::int64_t>(0, slot.server_skew_ns.load());
    return status.mtime_ns > last_ns ? FileCondition::changed : FileCondition::ready;
}

// Finds a file that was renamed in its folder, and stores its new path. Inode numbers are reused,
// so the birth time must agree too.
void follow_rename(Store& store, FileSlot& slot) {
    if (!slot.birth_ns) return;
    const std::string path(slot.path, strnlen(slot.path, path_limit));
    const auto slash = path.rfind('/');
    if (slash == std::string::npos) return;
    DIR* folder = opendir(path.substr(0, slash + 1).c_str());
    if (!folder) return;
    while (const dirent* entry = readdir(folder)) {
        if (entry->d_ino != slot.inode) continue;
        const std::string candidate = path.substr(0, slash + 1) + entry->d_name;
        FileStatus status;
        if (candidate.size() >= path_limit || read_status(candidate.c_str(), status) ||
            !status.regular || status.birth_ns != slot.birth_ns ||
            !is_same_file(slot, status, store.is_from_earlier_boot()))
            continue;
        std::snprintf(slot.path, path_limit, "%s", candidate.c_str());
        store.persist(&slot, sizeof slot);
        break;
    }
    closedir(folder);
}

void follow_renames(Store& store) {
    for (const auto k : store.assigned_slots()) {
        const auto condition = condition_of(store, store.file(k));
        if (condition == FileCondition::gone || condition == FileCondition::replaced)
            follow_rename(store, store.file(k));
    }
}

// Clears torn records, so that all readers of the rings skip them. Returns their number.
std::uint64_t drop_torn_records(Store& store) {
    std::uint64_t latest = 0, torn = 0;
    for_each_record(store, [&](std::uint32_t rank, std::uint64_t position, Record& record) {
        if (is_torn(store, rank, position)) {
            ++torn;
            record.file = 0;
            record.kind = record.count = 0;
            record.sequence = latest;
        }
        latest = std::max(latest, record.sequence);
    });
    store.advance_clock_past_data(latest);
    return torn;
}

// Clears the locks and marks of the job's processes, which have ended, and corrects the counters of
// the rings.
void release_locks(Store& store) {
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank) {
        auto& head = store.head(rank);
        head.pending = head.resolving = 0;
        head.unresolved = 0;
        const auto slots = store.layout().record_slots, tail = head.tail.load();
        const auto oldest =
            tail > slots ? tail - slots : 0;  // a damaged store may have a lower first_record
        head.first_record = std::clamp(head.first_record.load(), oldest, tail);
        // After a power failure the file system may have only what was fsynced.
        head.drained = store.persistent()
                           ? head.first_record.load()
                           : std::clamp(head.drained.load(), head.first_record.load(), tail);
    }
    for (const auto k : store.assigned_slots()) {
        auto& file = store.file(k);
        // The result of an fsync in which a process was killed is not known.
        if (file.syncing.exchange(0) && !file.error.load() && needs_sync(file))
            note_error(store, file, EIO);
    }
    auto& superblock = store.superblock();
    superblock.drain_lock = superblock.table_lock = 0;
}

// Sets the modification time to the job's last sign of life, so that recovery on another node, or a
// second recovery here, does not find the file changed since.
void restore_modification_time(FileSlot& file, int fd, std::int64_t last_alive_ns) {
    file.known_mtime_ns = 0;
    const timespec times[2] = {{0, UTIME_OMIT},
                               {last_alive_ns / 1'000'000'000, last_alive_ns % 1'000'000'000}};
    FileStatus status;
    if (futimens(fd, times) == 0 && read_status(fd, status) == 0)
        file.known_mtime_ns = status.mtime_ns;
    file.writing = 0;
}

// Writes the pending data of a file and calls fsync. Returns 0 or errno.
int complete(Store& store, Drain& drain, const FileHandles& handles, const UndrainedFile& file,
             std::int64_t last_alive_ns) {
    int error = drain.retry(file.slot), reason = 0;
    const auto descriptor = handles.open_for_writing(file.slot, reason);
    if (!descriptor) return reason;
    if (file.records)
        restore_modification_time(store.file(file.slot), descriptor->number(), last_alive_ns);
    return error ? error : drain.sync(file.slot, descriptor->number()).error();
}

// Whether recovery writes the file's data. An fsync alone is harmless.
bool may_write(const UndrainedFile& file, bool force) {
    return file.condition == FileCondition::ready ||
           (file.condition == FileCondition::changed && (force || !file.records));
}

}  // namespace

const char* name_of(FileCondition condition) {
    switch (condition) {
        case FileCondition::ready: return "ready";
        case FileCondition::gone: return "gone";
        case FileCondition::replaced: return "replaced";
        case FileCondition::changed: return "changed";
        case FileCondition::failed: return "failed";
    }
    return "unknown";
}

UndrainedData undrained_data(const Store& store) {
    UndrainedData undrained;
    if (!holds_data(store)) return undrained;
    undrained.torn = store.superblock().torn;
    std::map<std::uint32_t, UndrainedFile> files;
    for_each_record(store, [&](std::uint32_t rank, std::uint64_t position, const Record& record) {
        if (is_torn(store, rank, position)) {
            ++undrained.torn;
            return;
        }
        if (!is_pending(store, rank, position)) return;
        const auto& slot = store.file(record.file);
        auto& file = files[record.file];
        if (!file.records) {
            file.slot = record.file;
            file.path.assign(slot.path, strnlen(slot.path, path_limit));
            file.condition = condition_of(store, slot);
            file.error = static_cast<int>(slot.error.load());
        }
        ++file.records;
        file.bytes += record.length * record.count;
    });
    for (const auto k : store.assigned_slots()) {
        const auto& slot = store.file(k);
        if (slot.deleted.load() || !needs_sync(slot) || files.contains(k)) continue;
        UndrainedFile file;
        file.slot = k;
        file.path.assign(slot.path, strnlen(slot.path, path_limit));
        file.condition = condition_of(store, slot);
        // The data of a file that was removed or replaced since were in it, so they went with it.
        if (file.condition == FileCondition::ready || file.condition == FileCondition::changed)
            files[k] = std::move(file);
    }
    for (auto& [slot, file] : files) {
        undrained.records += file.records;
        undrained.bytes += file.bytes;
        undrained.files.push_back(std::move(file));
    }
    return undrained;
}

bool is_in_use(const Store& store) {
    constexpr int polls = 100;
    for (int poll = 0; poll < polls; ++poll) {
        if (flock(store.descriptor(), LOCK_EX | LOCK_NB) == 0) return false;
        if (flock(store.descriptor(), LOCK_SH | LOCK_NB) == 0) {
            flock(store.descriptor(), LOCK_UN);
            return true;
        }
        if (background_drain_runs(store))
            return true;  // it locks the store exclusively until all is written
        usleep(10'000);
    }
    return true;
}

Recovery recover(Store& store, const RecoveryOptions& options) {
    Recovery result;
    if (!holds_data(store)) return result;
    complete_commit(store);
    follow_renames(store);
    result.torn = store.superblock().torn += drop_torn_records(store);
    release_locks(store);  // before the list: data of a killed fsync are written again
    result.undrained_before = undrained_data(store);
    const FileHandles handles(store);
    Drain drain(store, handles, options.threads);
    std::vector<UndrainedFile> writable;
    for (auto& file : result.undrained_before.files) {
        if (may_write(file, options.force)) {
            writable.push_back(file);
            continue;
        }
        note_error(store, store.file(file.slot), ESTALE);
        result.kept.push_back(file);
    }
    const std::int64_t last_alive_ns = store.superblock().alive_ns.load();
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank)
        drain.finish(rank, store.head(rank).tail.load());
    for (auto& file : writable) {
        file.error = complete(store, drain, handles, file, last_alive_ns);
        if (!file.error) continue;
        file.condition = FileCondition::failed;
        result.kept.push_back(file);
    }
    // The drain has updated it; a later recovery must compare with the job's last sign of life.
    store.superblock().alive_ns = last_alive_ns;
    if (!options.discard) return result;
    result.torn = store.superblock().torn = 0;
    for (const auto& file : result.kept) {
        result.discarded += file.bytes;
        store.file(file.slot).deleted = 1;
    }
    result.kept.clear();
    return result;
}

}  // namespace assay::storage
