// Reads symbols of functions that a just-in-time compiler generated, from /tmp/perf-PID.map: a line
// per function, "begin bytes name", numbers in hexadecimal (Linux,
// tools/perf/Documentation/jit-interface.txt). V8, HotSpot, CPython and others write this file on
// request. The trace keeps the lines in its `code` chunk (trace/format.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "profile/stack/tree.hpp"

namespace assay::heap {

// Returns the lines of the functions that contain an address of these stack nodes, each with its
// newline. Empty if there is no file, or if it belongs to another user.
std::string jit_symbols(std::uint32_t pid, std::span<const stack::Node> nodes);

}  // namespace assay::heap
