// An allocator in an executable that the hooks do not see.
#pragma once

#include <string>

namespace assay::heap {

// The function of an allocator that an executable defines under a name that is not hooked, as in
// "mi_malloc"; empty if there is none. It is not found in a stripped executable. `path` is a
// file's.
const std::string& unhooked_allocator(const std::string& path);

}  // namespace assay::heap
