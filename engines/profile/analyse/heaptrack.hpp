// Imports files of heaptrack 1.0 and later (heaptrack.PROGRAM.PID.zst, .gz).
//
// These files hold no threads, no call times and no identities of blocks. A free is assigned to the
// latest live block of its size and stack: peaks and leaks are exact, lifetimes are not. Format:
// the sources of heaptrack_interpret, src/analyze/accumulatedtracedata.cpp, versions 2 and 3.
#pragma once

#include <cstdio>
#include <string>

namespace assay::heap {

// Imports a file and writes the profile as JSON to `output`. Imports the readable part of a
// truncated file. Throws Error if the file is not a heaptrack file.
void import_heaptrack(const std::string& path, std::FILE* output);

}  // namespace assay::heap
