// Names of code that was made at run time, by whoever made it: in /tmp/perf-PID.map, a line a
// function, "begin bytes name", the numbers in hexadecimal (Linux,
// tools/perf/Documentation/jit-interface.txt). V8, HotSpot, CPython and others write it when they
// are asked to.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "profile/stack/tree.hpp"

namespace assay::heap {

// The lines that hold an address of one of these nodes; empty where there is no such file, or it is
// another user's.
std::string names_of_code(std::uint32_t pid, std::span<const stack::Node> nodes);

}  // namespace assay::heap
