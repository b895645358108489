// The info keys of MPI_File_open that the accelerator reads, and those that MPI_File_get_info adds.
#pragma once

#include <string>

#include "storage/accelerator/mpi.hpp"
#include "storage/accelerator/settings.hpp"

namespace assay::storage {

struct InfoKeys {
    bool accelerated;     // assay_io=enable|disable; else the patterns of the settings
    bool memory;          // assay_io_until=memory|file; else the settings
    std::string unknown;  // what is said about values that are not known; empty: all are
};

// Info keys are stronger than the settings. Of `assay_io` an unknown value is ignored. Of
// `assay_io_until` it means file, which promises what both levels do.
InfoKeys read_info_keys(MPI_Info info, const Settings& settings, const std::string& name);

// Adds how a file is treated. `written`: it is open for writing, so it has a level.
void add_info_keys(MPI_Info info, bool written, bool memory);

}  // namespace assay::storage
