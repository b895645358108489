// What ranks see of each other after no more than a message or a barrier, as on a local file
// system: more than MPI promises, and what programs rely on.
#pragma once

#include <vector>

#include "mpiio/check.hpp"

extern const std::vector<Case> together;
