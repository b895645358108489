// Resolves addresses to functions, files and lines, with inlined calls, from the objects on disk
// (elfutils).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

struct Dwfl_Module;

namespace assay::heap {

struct Location {
    // Demangled; "module+0x1234" without a symbol, "(unknown code)" outside of all modules.
    std::string function;
    std::string file;  // empty without debug information
    int line = 0;
    std::string module;    // path of the object
    bool inlined = false;  // inlined into the next location of the list
};

// A file name of the debug information, absolute where `directory` (DW_AT_comp_dir; may be null)
// is.
std::string absolute_source(const char* file, const char* directory);

class Symbols {
public:
    Symbols();
    ~Symbols();

    // Adds modules: lines "load-bias begin end build-id path", numbers in hexadecimal.
    void add_modules(const std::string& text);
    // Adds functions that were generated at run time: lines "begin bytes name", numbers in
    // hexadecimal.
    // A later line replaces earlier ones that it overlaps.
    void add_jit_functions(const std::string& text);
    // Sets the locations of an address that another tool has resolved.
    void set_locations(std::uint64_t address, std::vector<Location> locations) {
        resolved_[address] = std::move(locations);
    }
    std::string_view object_of(std::uint64_t address) const;  // path of the object; empty if none
    // The locations of an address, innermost first; never empty.
    const std::vector<Location>& find(std::uint64_t address);
    // Bytes from the stack pointer to the return address, at `address`. None if the unwind table
    // has no entry of this simple form.
    std::optional<std::uint64_t> return_address_offset(std::uint64_t address);
    // An object's mapping in the process, and its module in elfutils, whose addresses are the
    // object's own plus `offline`.
    struct Object {
        std::string path;
        std::uint64_t bias, begin, end, offline;
        Dwfl_Module* module;
    };
    std::vector<Object> objects();  // objects that are still on disk and unchanged

    // Paths of objects that are missing or have changed.
    const std::vector<std::string>& missing() const { return missing_; }

private:
    struct Module;
    struct JitFunction {
        std::uint64_t end;
        Location location;
    };
    Module* module_of(std::uint64_t address) const;
    std::vector<Location> resolve(std::uint64_t address);
    std::optional<std::uint64_t> read_return_address_offset(std::uint64_t address);

    std::vector<std::unique_ptr<Module>> modules_;
    std::map<std::uint64_t, JitFunction> jit_functions_;  // by begin
    std::map<std::uint64_t, std::vector<Location>> resolved_;
    std::map<std::uint64_t, std::optional<std::uint64_t>> return_address_offsets_;
    std::vector<std::string> missing_;
};

}  // namespace assay::heap
