// The settings of the profiled process, from its environment or from the recorder that attached to
// it.
#pragma once

#include <cstddef>

namespace assay::heap {

// The value of a setting; empty if it is not set. getenv is not used, since it may not work yet at
// start-up and programs may define their own.
const char* setting(const char* name);

// Replaces all settings: "NAME=VALUE" entries, each ended by a zero, one more zero after the last.
// False if they are too long.
bool set_settings(const char* variables, std::size_t bytes);

// Whether this process is recorded: it is not an MPI rank, or one of the chosen ranks.
bool is_recorded_rank();
// The MPI rank; empty if there is none.
const char* mpi_rank();

// Sets `filter` from the settings. False if there is no memory.
bool load_filter();

}  // namespace assay::heap
