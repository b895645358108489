// Test cases on the modes of MPI_File_open: calls that a mode forbids fail with their error class,
// and files are created.
#pragma once

#include "mpiio/check.hpp"

extern const Case forbidden_calls, new_files;
