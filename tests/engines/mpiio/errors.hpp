// Test cases on errors: offsets that no file can have, and how often the error handler of a file is
// called.
#pragma once

#include "mpiio/check.hpp"

extern const Case error_handler, largest_offsets, errors_of_the_mpi;
