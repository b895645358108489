// A kept store: after its job all its data are in the file system, and still in the store. The next
// job takes the store over, and reads from it what the earlier one wrote.
//
// The records stay as they are. A file is served from the store if it is as the job left it, which
// its open finds out, as for a file that is opened again in one job (acquire_slot()).
#pragma once

#include <cstdint>
#include <string>

#include "storage/store/store.hpp"

namespace assay::storage {

// A node's kept store, as the nodes of a job exchange it to agree on what may be served.
struct KeptStoreInfo {
    std::uint64_t job = 0;    // hash of the earlier job's name; 0: this node has no kept store
    std::uint64_t nodes = 0;  // of the earlier job
    // Data of a file that several nodes had opened have left this store.
    std::uint64_t evicted_shared = 0;
};
KeptStoreInfo kept_store_info(const Store& store);

// Invalidates the files that the store may not serve. `single_node`: the earlier job and this one
// have one node. `all_stores_present`: the nodes of this job have all stores of the earlier one,
// and none has evicted_shared.
void invalidate_stale_files(const Store& store, bool single_node, bool all_stores_present);

// Whether it can be the name of a kept store: letters, digits and ._- , at most 32.
bool is_kept_name(const std::string& name);

// The files that a kept store serves, and their bytes in it.
struct KeptData {
    std::uint64_t bytes = 0;
    std::uint32_t files = 0;
};
KeptData kept_data(const Store& store);

}  // namespace assay::storage
