// What a job that ended early has left in a store, put where it belongs.
//
// Nothing needs to have been saved: a record that was published is whole, and says all. Records
// that are not (torn by a power failure, or damaged) are counted, told and left out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "storage/store/store.hpp"

namespace assay::storage {

struct Leftover {
    std::string path;
    std::uint64_t records = 0, bytes = 0;
    bool gone = false;  // the file has been removed or replaced
};

struct Contents {
    std::uint64_t records = 0, bytes = 0, torn = 0;
    std::vector<Leftover> files;
};

// What is not in the file system yet.
Contents contents(const Store& store);

// True where a running job holds the store; otherwise it is held by the caller from now on.
bool in_use(const Store& store);

// Writes it there. `error`: errno of what hindered it, 0 if nothing did; the store is then empty.
Contents recover(Store& store, unsigned threads, int& error);

}  // namespace assay::storage
