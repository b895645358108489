// What names code: objects (ELF, DWARF, unwind tables), lists of modules, functions of just-in-time
// compilers, and Python's places. The first byte of an input chooses.
#include <fstream>
#include <iterator>

#include "fuzz.hpp"
#include "profile/analyse/globals.hpp"
#include "profile/analyse/python_metadata.hpp"
#include "profile/analyse/symbols.hpp"

using namespace assay::heap;

std::vector<Input> planted_inputs() {
    std::ifstream file(FUZZ_OBJECT, std::ios::binary);
    Input object{'e'};
    object.insert(object.end(), std::istreambuf_iterator<char>(file), {});
    return {object,
            object,
            fuzz::input_of("j1000 20 int planted(int)\n1010 8 JS:*name file:///a.js:12:3\n0 1 x\n"),
            fuzz::input_of("m0 1000 9000 abcdef /nowhere/a.so\n10 9000 a000 - /nowhere/b c.so\n"),
            fuzz::input_of("pplace 7 12 /a.py\tfunction\neval 4010\nunread 3.99\n"),
            fuzz::input_of("g1000 9000 3f5 /nowhere/a.so\n9000 a000 1 /b.so\n")};
}

namespace {

void look_up(Symbols& symbols) {
    for (const std::uint64_t address : {0ull, 0x1000ull, 0x1050ull, 0x1100ull, 0x1139ull, 0x1150ull,
                                        0x2000ull, 0x9000ull, ~0ull}) {
        symbols.find(address);
        symbols.return_address_offset(address);
        symbols.object_of(address);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const std::string text(data + 1, data + size);
    Symbols symbols;
    switch (data[0]) {
        case 'e': {
            symbols.add_modules("0 0 100000 - " + fuzz::file_of(text.data(), text.size()) + "\n");
            look_up(symbols);
            find_globals(symbols, "0 100000 ffff x\n", 4096);
            break;
        }
        case 'j':
            symbols.add_jit_functions(text);
            look_up(symbols);
            break;
        case 'm':
            symbols.add_modules(text);
            look_up(symbols);
            break;
        case 'p': PythonMetadata().parse(text); break;
        case 'g': {
            symbols.add_modules("0 0 ffffffffffffffff - " FUZZ_OBJECT "\n");
            find_globals(symbols, text, 4096);
            break;
        }
        default: break;
    }
    return 0;
}
