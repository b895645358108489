// Checks whether an executable can be recorded: whether the hooks can be loaded into it, and
// whether it has an allocator of its own that they do not see.
#pragma once

#include <optional>
#include <string>

namespace assay::heap {

// Why a program, found as a shell finds it, cannot be recorded; none if it can, or if that is not
// known. Such a program is run as it is: the hooks would be without effect or end it.
std::optional<std::string> unrecordable(const std::string& program);

// The function of an allocator that an executable defines under a name that is not hooked, as in
// "mi_malloc"; empty if there is none. It is not found in a stripped executable. `path` is a
// file's.
const std::string& unhooked_allocator(const std::string& path);

}  // namespace assay::heap
