// Where a process's objects have their variables, and which pages of those are in memory.
#pragma once

#include <cstdint>
#include <string>

namespace assay::heap {

// As a chunk of mappings has it (trace/format.hpp); empty when the process has ended or may not be
// looked at.
std::string mappings_of(std::uint32_t pid);

}  // namespace assay::heap
