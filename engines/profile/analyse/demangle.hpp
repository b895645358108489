// Names of C++ functions and variables as programmers write them.
#pragma once

#include <string>

namespace assay::heap {

// The name itself if it is not mangled, or longer than any compiler makes them: the runtime's
// demangler takes memory on its stack for each character.
std::string demangled(const char* name);

}  // namespace assay::heap
