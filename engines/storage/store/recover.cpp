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
#include "storage/store/batch.hpp"
#include "storage/store/drain.hpp"
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
    // Whether known_mtime_ns is that of the job's last modification.
    const bool mtime_is_known = slot.known_mtime_ns.load() && !slot.writing.load() &&
                                !slot.shared.load() && !store.is_from_earlier_boot();
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
    for (std::uint32_t k = 0; k < file_slots && store.file(k).generation.load(); ++k) {
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
    store.advance_clock(latest + 1);  // the clock may have restarted
    return torn;
}

// Clears the locks and marks of the job's processes, which have ended, and corrects the counters of
// the rings.
void release_locks(Store& store) {
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank) {
        auto& head = store.head(rank);
        head.pending = head.resolving = 0;
        head.evicting = 0;
        const auto slots = store.layout().record_slots, tail = head.tail.load();
        const auto oldest =
            tail > slots ? tail - slots : 0;  // a damaged store may have a lower first_record
        head.first_record = std::clamp(head.first_record.load(), oldest, tail);
        // After a power failure the file system may have only what was fsynced.
        head.drained = store.persistent()
                           ? head.first_record.load()
                           : std::clamp(head.drained.load(), head.first_record.load(), tail);
    }
    auto& superblock = store.superblock();
    superblock.drain_lock = superblock.table_lock = superblock.eviction_stopped = 0;
}

// After a power failure FileSlot::failed_from may be older than FileSlot::error. Durable data must
// not be written again, because newer data of the same bytes may have been evicted from the rings.
void limit_errors_to_pending(Store& store) {
    for (std::uint32_t k = 0; k < file_slots && store.file(k).generation.load(); ++k) {
        auto& slot = store.file(k);
        slot.failed_from = std::max(slot.failed_from.load(), slot.durable.load());
    }
}

// Marks the file as failed from its first pending record on.
void note_write_error(Store& store, const UndrainedFile& file) {
    std::uint64_t oldest = ~0ull;
    for_each_record(store, [&](std::uint32_t rank, std::uint64_t position, const Record& record) {
        if (record.file == file.slot && is_pending(store, rank, position))
            oldest = std::min(oldest, record.sequence);
    });
    auto& slot = store.file(file.slot);
    slot.failed_from = oldest;
    slot.error = ESTALE;
}

// Writes the pending data of a file and calls fsync. Returns 0 or errno. Sets the modification time
// to the job's last sign of life, so that recovery on another node, or a second recovery here, does
// not find the file changed since.
int complete(Store& store, Drain& drain, const FileHandles& handles, std::uint32_t file,
             std::int64_t last_alive_ns) {
    int error = drain.retry(file), reason = 0;
    const auto descriptor = handles.open_for_writing(file, reason);
    if (!descriptor) return reason;
    store.file(file).known_mtime_ns = 0;
    const timespec times[2] = {{0, UTIME_OMIT},
                               {last_alive_ns / 1'000'000'000, last_alive_ns % 1'000'000'000}};
    FileStatus status;
    if (futimens(descriptor->number(), times) == 0 &&
        read_status(descriptor->number(), status) == 0)
        store.file(file).known_mtime_ns = status.mtime_ns;
    store.file(file).writing = 0;
    return error ? error : drain.sync(file, descriptor->number());
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
    result.undrained_before = undrained_data(store);
    result.torn = store.superblock().torn += drop_torn_records(store);
    release_locks(store);
    if (store.persistent()) limit_errors_to_pending(store);
    const FileHandles handles(store);
    Drain drain(store, handles, options.threads);
    std::vector<UndrainedFile> writable;
    for (auto& file : result.undrained_before.files) {
        const bool overridden = file.condition == FileCondition::changed && options.force;
        if (file.condition == FileCondition::ready || overridden) {
            writable.push_back(file);
            continue;
        }
        note_write_error(store, file);
        result.kept.push_back(file);
    }
    const std::int64_t last_alive_ns = store.superblock().alive_ns.load();
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank)
        drain.finish(rank, store.head(rank).tail.load());
    for (auto& file : writable) {
        file.error = complete(store, drain, handles, file.slot, last_alive_ns);
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
