// Kept stores: decides which files a later job may read from a store that an earlier job has left.
#include "storage/store/kept.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cctype>
#include <cstring>

#include "storage/store/file_table.hpp"

namespace assay::storage {
namespace {

constexpr std::size_t max_name_length = 32;

// A file system may have another device number after a restart of the machine. Files that are as
// the earlier job left them get the present one.
void update_devices(const Store& store) {
    for (const auto slot : store.assigned_slots()) {
        auto& file = store.file(slot);
        FileStatus status;
        if (file.path[path_limit - 1] == 0 && read_status(file.path, status) == 0 &&
            is_same_file(file, status, true) && file.size == status.size &&
            file.mtime_ns == status.mtime_ns && file.ctime_ns == status.ctime_ns)
            file.device = status.device;
    }
}

}  // namespace

KeptStoreInfo kept_store_info(const Store& store) {
    const auto& superblock = store.superblock();
    KeptStoreInfo info;
    if (!store.taken_over()) return info;
    info.job = XXH3_64bits(superblock.previous_job, sizeof superblock.previous_job) | 1;
    info.nodes = superblock.previous_nodes;
    for (const auto slot : store.assigned_slots()) {
        const auto& file = store.file(slot);
        info.evicted_shared |= file.shared.load() && file.evicted_newest.load();
    }
    return info;
}

// To invalidate a file its slot gets a new generation: readers on all nodes ignore records of an
// older generation.
void invalidate_stale_files(const Store& store, bool single_node, bool all_stores_present) {
    if (store.restarted()) update_devices(store);
    for (const auto slot : store.assigned_slots()) {
        auto& file = store.file(slot);
        const bool closed = file.size.load() >= 0 && !file.deleted.load() && !file.error.load();
        const bool stale = file.conflicted.load() || (file.shared.load() && !all_stores_present) ||
                           (file.evicted_newest.load() && !single_node);
        if (!closed || stale) {
            file.generation.fetch_add(1);
            file.size = -1;
            file.end = 0;
        } else if (file.evicted_newest.load()) {
            // The newest data of a byte may have left a ring while another rank's ring still has
            // older data of it, so all data up to the newest evicted ones are read from the file
            // system.
            file.foreign_before =
                std::max(file.foreign_before.load(), file.evicted_newest.load() + 1);
        }
        file.shared = file.conflicted = 0;
        store.persist(&file, 4 * cache_line);
    }
}

bool is_valid_store_name(const std::string& name) {
    return !name.empty() && name.size() <= max_name_length && name[0] != '.' &&
           std::all_of(name.begin(), name.end(), [](unsigned char letter) {
               return std::isalnum(letter) || std::strchr("._-", letter);
           });
}

}  // namespace assay::storage
