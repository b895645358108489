// Packs a trace after the program has ended: stores events as compressed columns, which takes about
// a tenth of the space.
#pragma once

#include <string>

namespace assay::heap {

// Replaces the trace by the packed one once that is complete. Damaged chunks are omitted. Throws
// Error if the trace cannot be read or written.
void pack(const std::string& trace);

}  // namespace assay::heap
