// The stores of other jobs of this user on this node: waits for data in them that are not in the
// file system yet, and removes those that aborted jobs have left empty.
//
// A job with ASSAY_IO_UNTIL=memory acknowledges data before the file system has them. Another job
// that opens the file must see them, so it waits for that job's drain.
#pragma once

#include <string>
#include <vector>

#include "storage/store/file_table.hpp"
#include "storage/store/store.hpp"

namespace assay::storage {

// This folder has each store with a background drain, or a symbolic link to it.
constexpr const char* stores_folder = "/dev/shm";

// Waits, for `limit_s` seconds at most, until all data of the file that other jobs of this user
// have acknowledged are written to the file system. `own_store`: this job's store. Returns an error
// message with its fix; empty: the file can be read.
std::string wait_for_other_jobs(const Store& own_store, const FileStatus& file, unsigned limit_s);

// Removes the stores that aborted jobs have left if the file system has all of their data. Nobody
// else does on a node where no `assay io run` waits for the job. `location`: of the new job's
// store.
void remove_empty_stores(const std::string& location);

// Adds a link to a store that lies in another folder to stores_folder.
void link_store(const Store& store);
// Removes this user's links to stores that no longer exist.
void remove_dead_links();

}  // namespace assay::storage
