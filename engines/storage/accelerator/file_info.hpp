// The info keys of MPI_File_open that the accelerator reads, and those that MPI_File_get_info adds.
#pragma once

#include <string>

#include "storage/accelerator/mpi.hpp"
#include "storage/accelerator/settings.hpp"

namespace assay::storage {

struct InfoKeys {
    bool accelerated;     // assay_io=enable|disable; without the key: Settings::covers()
    bool memory;          // assay_io_until=memory|file; without the key: Settings::until_memory
    std::string unknown;  // a message about unknown values; empty: there are none
};

// Info keys override the settings. An unknown value of `assay_io` is ignored; one of
// `assay_io_until` means `file`, the safer choice.
InfoKeys read_info_keys(MPI_Info info, const Settings& settings, const std::string& name);

// Adds the keys of an accelerated file. `written`: it is open for writing, so that assay_io_until
// applies.
void add_info_keys(MPI_Info info, bool written, bool memory);

}  // namespace assay::storage
