// Opens a file with the MPI's own I/O, which does not know the stores.
#pragma once

#include "storage/accelerator/job.hpp"
#include "storage/accelerator/mpi.hpp"

namespace assay::storage {

// Collective. Writes what the stores have of the file first. Calls the error handler of
// MPI_FILE_NULL and returns its code if the file cannot be opened.
int open_without_store(Job& job, MPI_Comm comm, const char* name, int mode, MPI_Info info,
                       MPI_File* handle);

// Calls the error handler of MPI_FILE_NULL, which handles errors of opening and closing. Returns
// `code`.
int call_default_handler(int code);

}  // namespace assay::storage
