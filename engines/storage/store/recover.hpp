// Recovery: writes what an aborted job left in its store into the file system.
//
// A published record is complete and describes its data, so nothing else had to be saved. Records
// that are torn by a power failure or damaged are counted, reported and left out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "storage/store/store.hpp"

namespace assay::storage {

struct UndrainedFile {
    std::string path;
    std::uint64_t records = 0, bytes = 0;
    bool gone = false;  // the file has been removed or replaced
};

struct UndrainedData {
    std::uint64_t records = 0, bytes = 0, torn = 0;
    std::vector<UndrainedFile> files;
};

// What the file system does not have yet.
UndrainedData undrained_data(const Store& store);

// True: a running job has locked the store. False: this process has locked it now.
bool in_use(const Store& store);

// Drains the store and returns what it held. `error`: errno; 0: the store is empty now.
UndrainedData recover(Store& store, unsigned threads, int& error);

}  // namespace assay::storage
