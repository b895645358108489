// Demangles names of C++ functions and variables.
#pragma once

#include <string>

namespace assay::heap {

// Returns the name unchanged if it is not mangled or extremely long: the runtime's demangler needs
// stack memory for each character.
std::string demangle(const char* name);

}  // namespace assay::heap
