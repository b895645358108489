// Names of code that was generated at run time, from /tmp/perf-PID.map: a line per function, "begin
// bytes name", numbers in hexadecimal (Linux, tools/perf/Documentation/jit-interface.txt). V8,
// HotSpot, CPython and others write this file on request.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "profile/stack/tree.hpp"

namespace assay::heap {

// The lines that contain the address of one of these nodes; empty if there is no file, or if it
// belongs to another user.
std::string names_of_code(std::uint32_t pid, std::span<const stack::Node> nodes);

}  // namespace assay::heap
