// Lists the global and thread-local variables of a program's objects, and their resident bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profile/analyse/symbols.hpp"

namespace assay::heap {

struct Variable {
    std::string name, object;  // name: demangled; object: path
    std::uint64_t bytes = 0;
    bool per_thread = false;
    std::string file;  // of the declaration; empty without debug information
    int line = 0;
    // Resident bytes. None for thread-local variables, and if the mappings were not recorded.
    std::optional<std::uint64_t> resident;
};

struct ObjectData {
    std::string path;
    std::uint64_t data = 0, bss = 0, tls = 0;  // bytes of the sections; tls: per thread
    std::uint64_t variables = 0;
    std::optional<std::uint64_t> resident;  // resident bytes of data and bss
};

struct Globals {
    std::vector<ObjectData> objects;  // largest first
    std::vector<Variable> variables;  // largest first, at most max_variables
};

inline constexpr std::size_t max_variables = 200;

// `mappings`: a mappings chunk (trace/format.hpp), or empty.
Globals find_globals(Symbols& symbols, const std::string& mappings, std::uint64_t page_bytes);

}  // namespace assay::heap
