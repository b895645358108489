// Converts a heap trace into a replay script.
#pragma once

#include <string>

#include "profile/alloc/script.hpp"
#include "profile/trace/file.hpp"

namespace assay::alloc {

// Writes the script and returns its header. Throws Error when the trace cannot be read or is
// incomplete.
ScriptHeader prepare(const std::string& trace, const std::string& script);

}  // namespace assay::alloc
