// The variables of a program that are there from beginning to end: of its objects, and of each of
// its threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profile/analyse/symbols.hpp"

namespace assay::heap {

struct Variable {
    std::string name, object;  // demangled; path
    std::uint64_t bytes = 0;
    bool per_thread = false;
    std::string file;  // empty where it is not known
    int line = 0;
    std::optional<std::uint64_t> resident;  // bytes; unknown of short runs and of those of threads
};

struct ObjectData {
    std::string path;
    std::uint64_t data = 0, zeroed = 0, per_thread = 0;  // bytes: initialised, .bss, of each thread
    std::uint64_t variables = 0;
    std::optional<std::uint64_t> resident;  // of the first two
};

struct Globals {
    std::vector<ObjectData> objects;  // largest first
    std::vector<Variable> variables;  // largest first, the first `most_variables`
};

inline constexpr std::size_t most_variables = 200;

// `mappings` as a chunk of them has it (trace/format.hpp), or empty.
Globals find_globals(Symbols& symbols, const std::string& mappings, std::uint64_t page_bytes);

}  // namespace assay::heap
