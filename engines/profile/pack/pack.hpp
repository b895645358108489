// Makes a trace smaller after the program has ended: events as compressed columns, a tenth of the
// size.
#pragma once

#include <string>

namespace assay::heap {

// Replaces the trace once the packed one is complete. Damaged parts are left out. Throws Error.
void pack(const std::string& trace);

}  // namespace assay::heap
