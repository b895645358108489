// Files of heaptrack 1.3 and later (heaptrack.PROGRAM.PID.zst), told as if they were our own.
//
// They have no threads, no times of calls, and no block's identity: of the blocks of one size and
// stack the last that was given is taken to be the first that is freed, so that peaks and leaks are
// exact and lifetimes are not. Format: the heaptrack_interpret sources,
// src/analyze/accumulatedtracedata.cpp, version 3.
#pragma once

#include <cstdio>
#include <string>

namespace assay::heap {

// Throws Error when it is no such file. One that was cut off is told as far as it goes.
void import_heaptrack(const std::string& path, std::FILE* to);

}  // namespace assay::heap
