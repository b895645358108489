// Programs that the hooks cannot be loaded into.
#pragma once

#include <optional>
#include <string>

namespace assay::heap {

// Why a program, found as a shell finds it, cannot be recorded; none if it can, or if that is not
// known. Such a program is run as it is: the hooks would be without effect or end it.
std::optional<std::string> unrecordable(const std::string& program);

}  // namespace assay::heap
