// Makes a script of a heap trace.
#pragma once

#include <string>

#include "profile/alloc/script.hpp"
#include "profile/trace/file.hpp"

namespace assay::alloc {

// Throws Error for what is no trace, or not a whole one.
Head prepare(const std::string& trace, const std::string& script);

}  // namespace assay::alloc
