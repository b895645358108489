// The file table of a store: finds, assigns and releases the slots of files under the table's lock.
#include "storage/store/file_table.hpp"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "storage/store/durability.hpp"
#include "storage/store/progress.hpp"

namespace assay::storage {
namespace {

constexpr unsigned table_owner_check_period =
    1000;  // attempts to lock between two checks of the owner

std::int64_t nanoseconds(const statx_timestamp& time) {
    return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

int read_status(int folder, const char* path, int flags, FileStatus& status) {
    struct statx info{};
    if (statx(folder, path, flags, STATX_BASIC_STATS | STATX_BTIME, &info)) return errno;
    status.device = std::uint64_t{info.stx_dev_major} << 32 | info.stx_dev_minor;
    status.inode = info.stx_ino;
    status.birth_ns = info.stx_mask & STATX_BTIME ? nanoseconds(info.stx_btime) : 0;
    status.size = static_cast<std::int64_t>(info.stx_size);
    status.mtime_ns = nanoseconds(info.stx_mtime);
    status.ctime_ns = nanoseconds(info.stx_ctime);
    status.links = info.stx_nlink;
    status.regular = S_ISREG(info.stx_mode);
    return 0;
}

// Whether the slot can be assigned to another file: no process has its file open, and the file
// system has all its data.
bool is_idle(const Store& store, std::uint32_t number) {
    const auto& slot = store.file(number);
    if (slot.users.load()) return false;
    if (!slot.deleted.load() && (slot.error.load() || needs_sync(slot))) return false;
    if (store.background_descriptor_of(number).load()) return false;
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank)
        if (store.head(rank).drained.load() != store.head(rank).tail.load() ||
            store.descriptor_of(rank, number).load())
            return false;
    return true;
}

// A free slot, else an idle one; file_slots: there is none.
std::uint32_t choose_slot(const Store& store) {
    for (std::uint32_t k = 0; k < file_slots; ++k)
        if (!store.file(k).generation.load()) return k;
    for (std::uint32_t k = 0; k < file_slots; ++k)
        if (is_idle(store, k)) return k;
    return file_slots;
}

// If the file is not as the last close left it, the store's durable data of it are outdated. Data
// that are not durable stay valid, and those that an older write may have come over.
void drop_outdated_data(const Store& store, std::uint32_t number, const FileStatus& status) {
    auto& slot = store.file(number);
    const bool was_closed = slot.size.load() >= 0;
    // Of a file that is not drained yet, the drain stores the modification time (note_modified()).
    if (was_closed) slot.known_mtime_ns = status.mtime_ns;
    if (was_closed && (slot.size != status.size || slot.mtime_ns != status.mtime_ns ||
                       slot.ctime_ns != status.ctime_ns)) {
        std::uint64_t outdated_before = slot.durable.load();
        for (std::uint32_t rank = 0; rank < store.ranks(); ++rank)
            if (const std::uint64_t unresolved = store.head(rank).unresolved.load())
                outdated_before = std::min(outdated_before, unresolved);
        raise_to(slot.valid_from, outdated_before);
        lower_end(store, number);
        store.persist(&slot, 2 * cache_line);
    }
    slot.size = -1;  // in use
}

void set_path(FileSlot& slot, const std::string& path) {
    std::snprintf(slot.path, path_limit, "%s", path.c_str());
}

}  // namespace

int read_status(int fd, FileStatus& status) { return read_status(fd, "", AT_EMPTY_PATH, status); }

int read_status(const char* path, FileStatus& status) {
    return read_status(AT_FDCWD, path, 0, status);
}

bool is_same_file(const FileSlot& slot, const FileStatus& status, bool earlier_boot) {
    return slot.inode == status.inode && (earlier_boot || slot.device == status.device) &&
           (!slot.birth_ns || !status.birth_ns || slot.birth_ns == status.birth_ns);
}

std::uint32_t find_slot(const Store& store, const FileStatus& status) {
    for (const auto k : store.assigned_slots())
        if (!store.file(k).deleted.load() && is_same_file(store.file(k), status)) return k;
    return file_slots;
}

bool try_lock(const Store& store, std::atomic<std::uint32_t>& lock, bool check_owner) {
    std::uint32_t owner = 0;
    const auto self = static_cast<std::uint32_t>(getpid());
    if (lock.compare_exchange_strong(owner, self, std::memory_order_acquire)) return true;
    return check_owner && owner != self && store.has_ended(owner) &&
           lock.compare_exchange_strong(owner, self, std::memory_order_acquire);
}

TableLock::TableLock(const Store& store) : lock_(store.superblock().table_lock) {
    for (unsigned attempt = 1; !try_lock(store, lock_, attempt % table_owner_check_period == 0);
         ++attempt)
        sched_yield();
}
TableLock::~TableLock() { lock_.store(0, std::memory_order_release); }

std::uint32_t acquire_slot(const Store& store, const FileStatus& status, const std::string& path) {
    if (path.size() >= path_limit) return file_slots;
    TableLock lock(store);
    if (const auto existing = find_slot(store, status); existing != file_slots) {
        auto& slot = store.file(existing);
        if (slot.users.load() == 0) drop_outdated_data(store, existing, status);
        if (slot.users.fetch_add(1) == 0) slot.route = Route::undecided;
        if (path != slot.path) {
            set_path(slot, path);
            store.persist(&slot, sizeof slot);
        }
        return existing;
    }
    const std::uint32_t chosen = choose_slot(store);
    if (chosen == file_slots) return chosen;
    auto& slot = store.file(chosen);
    if (store.populate(StoreLayout::files_offset() + chosen * sizeof slot, sizeof slot))
        return file_slots;
    if (slot.generation.load()) {
        // The old file's records become invalid before the slot describes another file.
        slot.generation.fetch_add(1);
        store.persist(&slot, cache_line);
    }
    slot.device = status.device;
    slot.inode = status.inode;
    slot.birth_ns = status.birth_ns;
    slot.end = slot.valid_from = slot.drained_before = slot.durable = slot.evicted_newest =
        slot.foreign_before = slot.settled = 0;
    slot.size = -1;
    slot.mtime_ns = slot.ctime_ns = slot.server_skew_ns = 0;
    slot.known_mtime_ns = status.mtime_ns;
    slot.error = slot.repeats = slot.failed_syncs = slot.syncing = 0;
    slot.deleted = slot.writing = slot.shared = 0;
    slot.acknowledged = slot.background_open_failed = slot.conflicted = slot.superseded = 0;
    slot.repeats_unsettled = 0;
    slot.route = Route::undecided;
    slot.users = 1;
    set_path(slot, path);
    slot.generation.fetch_add(1, std::memory_order_release);
    store.persist(&slot, sizeof slot);
    return chosen;
}

void update_path(const Store& store, std::uint32_t slot, int fd) {
    char link[64], path[path_limit];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof path);
    if (length <= 0 || static_cast<std::size_t>(length) == sizeof path || path[0] != '/') return;
    TableLock lock(store);
    auto& file = store.file(slot);
    set_path(file, std::string(path, static_cast<std::size_t>(length)));
    store.persist(&file, sizeof file);
}

void note_modified(const Store& store, std::uint32_t slot, int fd) {
    auto& file = store.file(slot);
    FileStatus status;
    if (read_status(fd, status)) return;
    store.note_alive();
    const std::int64_t skew = status.mtime_ns - store.superblock().alive_ns.load();
    if (!file.server_skew_ns.load() || file.server_skew_ns.load() < skew)
        file.server_skew_ns = skew;
    file.known_mtime_ns = status.mtime_ns;
    file.writing = 0;
    store.persist(&file, 3 * cache_line);
}

void release_slot(const Store& store, std::uint32_t slot, const FileStatus* closed) {
    TableLock lock(store);
    auto& file = store.file(slot);
    if (closed) {
        file.mtime_ns = closed->mtime_ns;
        file.ctime_ns = closed->ctime_ns;
        file.size = closed->size;
    }
    file.users.fetch_sub(1);
}

void drop_deleted_file(const Store& store, const FileStatus& status) {
    TableLock lock(store);
    const auto existing = find_slot(store, status);
    if (existing == file_slots || store.file(existing).users.load()) return;
    store.file(existing).deleted = 1;
    store.persist(&store.file(existing), 3 * cache_line);
}

}  // namespace assay::storage
