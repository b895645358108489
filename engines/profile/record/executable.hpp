// Detects an allocator in an executable that the hooks do not intercept.
#pragma once

#include <string>

namespace assay::heap {

// Returns the name of an allocator function that the executable file `path` defines and that is not
// hooked, e.g. "mi_malloc"; empty if there is none or the executable is stripped.
const std::string& unhooked_allocator(const std::string& path);

}  // namespace assay::heap
