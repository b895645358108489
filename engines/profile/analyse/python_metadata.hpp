// The Python part of a trace: the functions and lines of Python frames, and the C frames that run
// them.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "profile/analyse/symbols.hpp"

namespace assay::heap {

struct PythonMetadata {
    std::unordered_map<std::uint32_t, Location> locations;  // by the number in the frames
    std::unordered_set<std::uint64_t>
        eval_addresses;               // return addresses in C frames that run Python frames
    std::string unsupported_version;  // version of an unsupported interpreter; empty: none
    // By stack: whether an event refers to it; all other stacks are only callers. Empty without
    // Python frames: all stacks then count as named.
    std::vector<bool> named_stacks;

    bool has_frames() const { return !locations.empty(); }
    // Adds the lines of one chunk (format: heap/python.hpp).
    void parse(const std::string& text);
};

}  // namespace assay::heap
