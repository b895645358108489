// A kept store (setting ASSAY_IO_KEEP): after its job all its data are in the file system, and also
// still in the store. The next job that names the store takes it over and reads from memory what
// the earlier job wrote.
//
// The records stay as they are. A file is served from the store if it is as the earlier job left
// it. Opening the file checks that, as for a file that is opened twice in one job (acquire_slot()).
#pragma once

#include <cstdint>
#include <string>

#include "storage/store/store.hpp"

namespace assay::storage {

// A node's kept store, as the nodes of a job exchange it to agree on what may be served.
struct KeptStoreInfo {
    std::uint64_t job = 0;    // hash of the earlier job's name; 0: this node has no kept store
    std::uint64_t nodes = 0;  // number of nodes of the earlier job
    // 1: data of a file that several nodes had opened were evicted from this store.
    std::uint64_t evicted_shared = 0;
};
KeptStoreInfo kept_store_info(const Store& store);

// Invalidates the files that must not be served from the store. `single_node`: the earlier job and
// this one run on one node. `all_stores_present`: the nodes of this job have all stores of the
// earlier one, and none has evicted_shared.
void invalidate_stale_files(const Store& store, bool single_node, bool all_stores_present);

// Whether `name` can name a kept store: at most 32 letters, digits and ._- ; not "." first.
bool is_valid_store_name(const std::string& name);

}  // namespace assay::storage
