// What is asked of the profiled process: by variables of its environment, or, where it was running
// already, by whoever has attached to it.
#pragma once

#include <cstddef>

namespace assay::heap {

// As it was asked for; empty for nothing. getenv is not called: it may not be ready yet, and
// programs may have an own one.
const char* variable(const char* name);

// From here on these, "NAME=VALUE" each, a zero after each and one more after the last. False when
// there is no room.
bool take_settings(const char* variables, std::size_t bytes);

// Whether this process is none of an MPI program's, or one of those that are wanted.
bool is_wanted_rank();
// In an MPI program; empty for none.
const char* own_rank();

// What is left out of the profile. False when there is no memory for it.
bool read_filter();

}  // namespace assay::heap
