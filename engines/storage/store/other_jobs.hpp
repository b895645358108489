// Data of other jobs that are in a store of this node and not in the file system yet.
//
// A job at level memory acknowledges data before the file system has them. Another job that opens
// the file must see them, so it waits for that job's drain.
#pragma once

#include <string>
#include <vector>

#include "storage/store/file_table.hpp"
#include "storage/store/store.hpp"

namespace assay::storage {

// In this folder each store with a background drain is found: by its own name, or by a link.
constexpr const char* stores_folder = "/dev/shm";

// Waits until the file system was handed all data of the file that other jobs of this user have
// acknowledged, for `limit_s` at most. `own_store`: this job's store. Returns an error message with
// its fix; empty: the file can be read.
std::string wait_for_other_jobs(const Store& own_store, const FileStatus& file, unsigned limit_s);

// Makes a store that lies elsewhere known in the folder above.
void link_store(const Store& store);
// Removes this user's links to stores that are not there any more.
void remove_dead_links();

}  // namespace assay::storage
