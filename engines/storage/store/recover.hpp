// Recovery: writes the data that an ended job has left in its store into the file system.
//
// A published record is complete and describes its data, so recovery needs only the store. Data
// that cannot or should not be written stay in the store and are reported. Records that a power
// failure has torn are counted and reported.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "storage/store/store.hpp"

namespace assay::storage {

enum class FileCondition {
    ready,     // recovery writes it
    gone,      // there is no file at its path
    replaced,  // another file is at its path
    changed,   // it was modified after the job's last sign of life
    failed     // it cannot be written, see `error`
};
const char* name_of(FileCondition condition);

struct UndrainedFile {
    std::string path;
    std::uint32_t slot = 0;
    std::uint64_t records = 0, bytes = 0;  // 0: its data were written, but an fsync is missing
    FileCondition condition = FileCondition::ready;
    int error = 0;  // errno of the last attempt to write it; 0: none failed
};

struct UndrainedData {
    std::uint64_t records = 0, bytes = 0, torn = 0;
    std::vector<UndrainedFile> files;
};

// The data that only the store has; `torn` counts records that are damaged and not included.
UndrainedData undrained_data(const Store& store);

// Whether a running job or its background drain has the store open. If not, this call has locked
// the store for this process. Waits up to 1 s for another command that has it locked.
bool is_in_use(const Store& store);

struct RecoveryOptions {
    unsigned threads = 4;
    bool force = false;    // writes files that were changed since the job, too
    bool discard = false;  // drops the data that cannot be written, and torn records
};

struct Recovery {
    UndrainedData undrained_before;
    std::vector<UndrainedFile> kept;  // files whose data are still only in the store
    std::uint64_t torn = 0;           // records; if not 0, the store must be kept too
    std::uint64_t discarded = 0;      // bytes that were dropped
};

// Writes the store's data into the file system and waits until they are on its medium.
Recovery recover(Store& store, const RecoveryOptions& options);

}  // namespace assay::storage
