// Lists the writable mappings of a process's objects and their resident pages.
#pragma once

#include <cstdint>
#include <string>

namespace assay::heap {

// The text of a mappings chunk (trace/format.hpp); empty if the process has ended or access is
// denied.
std::string list_object_mappings(std::uint32_t pid);

}  // namespace assay::heap
