// Finds the stores of other jobs of this user on this node, and waits until data that they have
// acknowledged are in the file system.
#include "storage/store/other_jobs.hpp"

#include <dirent.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "storage/store/background.hpp"
#include "storage/store/durability.hpp"
#include "storage/store/progress.hpp"

namespace assay::storage {
namespace {

constexpr const char* link_prefix = "assay-io-at-";
constexpr long poll_ms = 5;

std::string folder_of(const std::string& path) {
    const auto slash = path.rfind('/');
    return slash == std::string::npos ? "." : path.substr(0, std::max<std::size_t>(1, slash));
}

// The paths of a folder's entries whose names begin with `name_prefix`.
std::vector<std::string> entries(const std::string& folder, const char* name_prefix) {
    std::vector<std::string> paths;
    DIR* stream = opendir(folder.c_str());
    if (!stream) return paths;
    while (const dirent* entry = readdir(stream))
        if (std::strncmp(entry->d_name, name_prefix, std::strlen(name_prefix)) == 0)
            paths.push_back(folder + "/" + entry->d_name);
    closedir(stream);
    return paths;
}

// The real paths of the stores of this user in stores_folder and in `folder`, except `own_store`.
// Stores of other users are not read: their contents are not to be trusted.
std::vector<std::string> other_stores(const std::string& folder, const Store* own_store) {
    std::vector<std::string> all = entries(stores_folder, store_prefix), stores;
    if (folder != stores_folder)
        for (auto& path : entries(folder, store_prefix)) all.push_back(std::move(path));
    struct stat own_status{}, link{}, info{};
    if (own_store && fstat(own_store->descriptor(), &own_status)) return stores;
    for (const auto& path : all) {
        if (lstat(path.c_str(), &link) || link.st_uid != geteuid()) continue;
        // Only a link has another real path. This runs at each open.
        char real[PATH_MAX];
        if (S_ISLNK(link.st_mode)) {
            if (!realpath(path.c_str(), real) || stat(real, &info)) continue;
        } else {
            std::snprintf(real, sizeof real, "%s", path.c_str());
            info = link;
        }
        const bool store = S_ISREG(info.st_mode) ? info.st_uid == geteuid() : S_ISCHR(info.st_mode);
        if (store && (info.st_ino != own_status.st_ino || info.st_dev != own_status.st_dev))
            stores.emplace_back(real);
    }
    std::sort(stores.begin(), stores.end());
    stores.erase(std::unique(stores.begin(), stores.end()), stores.end());
    return stores;
}

// Whether the store's job was aborted, or its background drain was. One that a job still creates
// (Phase::formatting) is none: its lock is free for a moment. Locks the store.
bool is_left(const Store& store) {
    const auto has_data = [&] {
        const Phase phase = store.superblock().phase.load();
        return phase == Phase::active || phase == Phase::detached;
    };
    return has_data() && flock(store.descriptor(), LOCK_EX | LOCK_NB) == 0 && has_data();
}

// The slot of the file if the store has acknowledged data of it (FileSlot::acknowledged);
// file_slots if it has none.
std::uint32_t acknowledged_slot(const Store& store, const FileStatus& file) {
    const Phase phase = store.superblock().phase.load();
    if (phase != Phase::active && phase != Phase::detached) return file_slots;
    for (const auto k : store.assigned_slots()) {
        const auto& slot = store.file(k);
        if (slot.acknowledged.load() && !slot.deleted.load() &&
            is_same_file(slot, file, store.is_from_earlier_boot()))
            return k;
    }
    return file_slots;
}

bool is_unused(const Store& store) {
    if (flock(store.descriptor(), LOCK_EX | LOCK_NB)) return false;
    flock(store.descriptor(), LOCK_UN);
    return true;
}

// Whether the store is another node of the same program, which runs: where all lie on one machine,
// as in tests. An earlier program of the same job has ended.
bool is_of_same_program(const Store& store, const Store& own_store) {
    if (std::strncmp(store.superblock().job, own_store.superblock().job,
                     sizeof own_store.superblock().job) != 0 ||
        store.superblock().phase.load() != Phase::active)
        return false;
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank)
        if (!store.has_ended(store.head(rank).pid.load())) return true;
    return false;
}

// Waits until the file's data are written. Returns an error message; empty: they are written.
std::string wait_until_written(const Store& store, std::uint32_t number, unsigned limit_s) {
    const auto& slot = store.file(number);
    const std::uint32_t generation = slot.generation.load();
    for (long waited_ms = 0;; waited_ms += poll_ms) {
        // This check comes before is_durable(): a drain that ends in between has written what it
        // could.
        const bool drains = background_drain_runs(store) || !is_unused(store);
        if (!slot.acknowledged.load() || slot.generation.load() != generation ||
            is_durable(store, number))
            return {};
        if (const auto error = slot.error.load()) return std::strerror(static_cast<int>(error));
        if (!drains) return "no drain runs";
        if (waited_ms / 1000 >= static_cast<long>(limit_s))
            return "they were not written within " + std::to_string(limit_s) + " s";
        store.request_drain();
        usleep(poll_ms * 1000);
    }
}

}  // namespace

std::string wait_for_other_jobs(const Store& own_store, const FileStatus& file, unsigned limit_s) {
    for (const auto& path : other_stores(folder_of(own_store.path()), &own_store)) {
        Failure failure;
        const auto store = Store::attach(path, false, failure);
        if (!store || is_of_same_program(*store, own_store)) continue;
        const std::uint32_t slot = acknowledged_slot(*store, file);
        if (slot == file_slots) continue;
        const auto reason = wait_until_written(*store, slot, limit_s);
        if (reason.empty()) continue;
        std::string message = "data of an earlier job are in ";
        message.append(path).append(" and not in the file yet: ").append(reason);
        return message.append("; fix: assay io drain ").append(path);
    }
    return {};
}

void remove_empty_stores(const std::string& location) {
    struct stat info{};
    const bool is_folder = stat(location.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
    for (const auto& path : other_stores(is_folder ? location : folder_of(location), nullptr)) {
        Failure failure;
        const auto store = Store::attach(path, false, failure);
        if (store && is_left(*store) && may_remove(*store)) store->remove();
    }
}

void link_store(const Store& store) {
    remove_dead_links();
    if (folder_of(store.path()) == stores_folder) return;
    for (const auto& link : entries(stores_folder, link_prefix)) {
        char target[PATH_MAX];
        const ssize_t length = readlink(link.c_str(), target, sizeof target);
        if (length > 0 && store.path() == std::string(target, static_cast<std::size_t>(length)))
            return;
    }
    const std::string name = std::string(stores_folder) + "/" + link_prefix +
                             store.superblock().job + "-" + std::to_string(getpid());
    if (symlink(store.path().c_str(), name.c_str()))
        return;  // jobs whose stores lie in other folders do not find this store
}

void remove_dead_links() {
    struct stat link{}, info{};
    for (const auto& path : entries(stores_folder, link_prefix))
        if (lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode) && link.st_uid == geteuid() &&
            stat(path.c_str(), &info) != 0)
            unlink(path.c_str());
}

}  // namespace assay::storage
