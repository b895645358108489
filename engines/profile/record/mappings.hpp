// The writable mappings of a process's objects, and which of their pages are in memory.
#pragma once

#include <cstdint>
#include <string>

namespace assay::heap {

// The text of a mappings chunk (trace/format.hpp); empty if the process has ended or access is
// denied.
std::string mappings_of(std::uint32_t pid);

}  // namespace assay::heap
