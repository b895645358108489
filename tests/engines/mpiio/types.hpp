// Test cases on datatypes: buffers with gaps, distributed arrays, and types and transfers that are
// large.
#pragma once

#include "mpiio/check.hpp"

extern const std::vector<Case> type_cases;
extern const Case little_memory, two_gigabytes;
