// Test cases on visibility: writes must be visible to other ranks after a message or a barrier, as
// on a local file system. MPI does not guarantee that, but programs rely on it.
#pragma once

#include <vector>

#include "mpiio/check.hpp"

extern const std::vector<Case> visibility_cases;
