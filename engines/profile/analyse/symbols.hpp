// Functions, files and lines of addresses, from the objects on disk (elfutils), inlined calls among
// them.
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

struct Place {
    std::string function;  // demangled; "module+0x1234" where nothing is known, "(unknown code)" in
                           // no module
    std::string file;      // empty where it is not known
    int line = 0;
    std::string module;    // path of the object
    bool inlined = false;  // into the next one
};

class Symbols {
public:
    Symbols();
    ~Symbols();

    // Lines "load-bias begin end build-id path", hexadecimal.
    void add_modules(const std::string& text);
    // Lines "begin bytes name" of functions that were made at run time, hexadecimal; the later one
    // counts.
    void add_code(const std::string& text);
    // What another tool has found out.
    void know(std::uint64_t address, std::vector<Place> places) {
        known_[address] = std::move(places);
    }
    std::string_view object_at(std::uint64_t address) const;  // its path; empty for none
    // Innermost first; never empty.
    const std::vector<Place>& find(std::uint64_t address);
    // In the function at this address: bytes from the stack pointer up to where its caller's
    // address lies. None where that is not told, or told in another way.
    std::optional<std::uint64_t> return_at(std::uint64_t address);
    // An object as it lay in the process, and as elfutils has it: which adds `offline` to the
    // object's own addresses.
    struct Object {
        std::string path;
        std::uint64_t bias, begin, end, offline;
        Dwfl_Module* module;
    };
    std::vector<Object> objects();  // that are still there

    // Objects that were not there any more, or not the same.
    const std::vector<std::string>& missing() const { return missing_; }

private:
    struct Module;
    struct Made {
        std::uint64_t end;
        Place place;
    };
    Module* module_of(std::uint64_t address) const;
    std::vector<Place> resolve(std::uint64_t address);
    std::optional<std::uint64_t> read_return(std::uint64_t address);

    std::vector<std::unique_ptr<Module>> modules_;
    std::map<std::uint64_t, Made> made_;  // at run time, by where it begins
    std::map<std::uint64_t, std::vector<Place>> known_;
    std::map<std::uint64_t, std::optional<std::uint64_t>> returns_;
    std::vector<std::string> missing_;
};

}  // namespace assay::heap
