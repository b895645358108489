// The info keys of MPI_File_open that the accelerator reads, and those that MPI_File_get_info adds.
#pragma once

#include <string>
#include <vector>

#include "storage/accelerator/mpi.hpp"
#include "storage/accelerator/settings.hpp"

namespace assay::storage {

// Which ranks of a communicator shall do the MPI's collective transfers.
struct AggregatorHints {
    int count = 0;     // cb_nodes; 0: not given
    std::string list;  // cb_config_list; empty: not given
};

struct InfoKeys {
    bool accelerated;  // assay_io=enable|disable; without the key: Settings::covers()
    bool memory;       // assay_io_until=memory|file; without the key: Settings::until_memory
    AggregatorHints aggregators;
    std::string unknown;  // a message about unknown values; empty: there are none
};

// Info keys override the settings. An unknown value of `assay_io` is ignored; one of
// `assay_io_until` means `file`, the safer choice.
InfoKeys read_info_keys(MPI_Info info, const Settings& settings, const std::string& name);

// Adds the keys of an accelerated file. `written`: it is open for writing, so that assay_io_until
// applies.
void add_info_keys(MPI_Info info, bool written, bool memory);

// The MPI opens a file for each rank alone, where a list of hosts may name none that is there. This
// is a copy of the info without it, which the caller frees.
MPI_Info info_of_one_rank(MPI_Info info);

// ROMIO tells its aggregators. For a file of one rank there is one; this writes those that the
// communicator has with the same hints, or nothing of them if that is not known. `nodes`: of each
// rank of the communicator. Other MPIs' infos repeat the hints.
void set_aggregators(MPI_Info info, const AggregatorHints& hints, const std::vector<int>& nodes);

}  // namespace assay::storage
