// Makes a trace as small as it can be, once the program no longer needs the processors.
#pragma once

#include <string>

namespace assay::heap {

// In place: the trace is replaced when the packed one is whole. What is damaged is left out. Throws
// Error.
void pack(const std::string& trace);

}  // namespace assay::heap
