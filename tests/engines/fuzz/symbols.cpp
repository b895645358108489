// Fuzz target: readers of symbols: object files (ELF, DWARF, unwind tables), lists of modules,
// functions of just-in-time compilers (perf maps), source places of Python, and global variables.
#include <fstream>
#include <iterator>

#include "fuzz.hpp"
#include "profile/analyse/globals.hpp"
#include "profile/analyse/python_metadata.hpp"
#include "profile/analyse/symbols.hpp"

using namespace assay::heap;

namespace {

std::string text_of(const std::uint8_t* data, std::size_t size) { return {data, data + size}; }

void look_up(Symbols& symbols) {
    for (const std::uint64_t address : {0ull, 0x1000ull, 0x1050ull, 0x1100ull, 0x1139ull, 0x1150ull,
                                        0x2000ull, 0x9000ull, ~0ull}) {
        symbols.find(address);
        symbols.return_address_offset(address);
        symbols.object_of(address);
    }
}

std::vector<Input> seed_object() {
    std::ifstream file(FUZZ_OBJECT, std::ios::binary);
    return {Input(std::istreambuf_iterator<char>(file), {})};
}

void read_object(const std::uint8_t* data, std::size_t size) {
    Symbols symbols;
    symbols.add_modules("0 0 100000 - " + fuzz::write_input_file(data, size) + "\n");
    look_up(symbols);
    find_globals(symbols, "0 100000 ffff x\n", 4096);
}

std::vector<Input> seed_perf_map() {
    return {fuzz::input_of("1000 20 int planted(int)\n1010 8 JS:*name file:///a.js:12:3\n0 1 x\n")};
}

void read_perf_map(const std::uint8_t* data, std::size_t size) {
    Symbols symbols;
    symbols.add_jit_functions(text_of(data, size));
    look_up(symbols);
}

std::vector<Input> seed_modules() {
    return {fuzz::input_of("0 1000 9000 abcdef /nowhere/a.so\n10 9000 a000 - /nowhere/b c.so\n")};
}

void read_modules(const std::uint8_t* data, std::size_t size) {
    Symbols symbols;
    symbols.add_modules(text_of(data, size));
    look_up(symbols);
}

std::vector<Input> seed_places() {
    return {fuzz::input_of("place 7 12 /a.py\tfunction\neval 4010\nunread 3.99\n")};
}

void read_places(const std::uint8_t* data, std::size_t size) {
    PythonMetadata().parse(text_of(data, size));
}

std::vector<Input> seed_variables() {
    return {fuzz::input_of("1000 9000 3f5 /nowhere/a.so\n9000 a000 1 /b.so\n")};
}

void read_variables(const std::uint8_t* data, std::size_t size) {
    Symbols symbols;
    symbols.add_modules("0 0 ffffffffffffffff - " FUZZ_OBJECT "\n");
    find_globals(symbols, text_of(data, size), 4096);
}

}  // namespace

std::vector<Reader> readers() {
    return {{"elf", seed_object, read_object},
            {"perf_map", seed_perf_map, read_perf_map},
            {"modules", seed_modules, read_modules},
            {"python", seed_places, read_places},
            {"variables", seed_variables, read_variables}};
}
