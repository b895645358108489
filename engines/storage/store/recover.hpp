// Recovery: writes what an ended job has left in its store into the file system.
//
// A published record is complete and describes its data, so nothing else had to be saved. Nothing
// is dropped in silence: what cannot or should not be written stays in the store. Records that a
// power failure has torn are counted and reported.
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
    std::uint64_t records = 0, bytes = 0;
    FileCondition condition = FileCondition::ready;
    int error = 0;  // errno; before recovery: of the last attempt to write it
};

struct UndrainedData {
    std::uint64_t records = 0, bytes = 0, torn = 0;
    std::vector<UndrainedFile> files;
};

// What only the store has. `torn` records are not among it.
UndrainedData undrained_data(const Store& store);

// True: a running job has the store open. False: this process has locked it now. Waits up to 1 s
// for another command that has it locked.
bool is_in_use(const Store& store);

struct RecoveryOptions {
    unsigned threads = 4;
    bool force = false;    // also files that were changed since
    bool discard = false;  // what cannot be written is dropped, torn records too
};

struct Recovery {
    UndrainedData undrained_before;
    std::vector<UndrainedFile> kept;  // what the store still holds; empty: it can be removed
    std::uint64_t torn = 0;           // records; the store is kept for them too
    std::uint64_t discarded = 0;      // bytes
};

// Writes the store's data into the file system and waits until they are on its medium.
Recovery recover(Store& store, const RecoveryOptions& options);

}  // namespace assay::storage
