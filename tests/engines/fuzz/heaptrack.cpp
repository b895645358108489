// Fuzz target: the import of heaptrack's files. Inputs are mutated before they are compressed.
#include <zstd.h>

#include <cstdio>

#include "core/error.hpp"
#include "fuzz.hpp"
#include "profile/analyse/heaptrack.hpp"

namespace {

std::vector<Input> seed_inputs() {
    const std::string head = "v 10500 3\nX /bin/prog a b\nI 1000 100\n";
    return {
        fuzz::input_of(
            head +
            "s 4 main\ns 4 leak\ns 4 /a.c\ns 9 /bin/prog\n"
            "i 401000 4 1 3 7\ni 402000 4 2 3 9 1 3 8\ni 403000 0\nt 1 0\nt 2 1\nt 3 2\n"
            "a 64 1\na 20 2\na 8 3\nc 1\nR 10\n+ 0\n+ 1\nc 2\n- 1\n+ 2\n- 2\nc 3\nR 20\n# end\n"),
        fuzz::input_of(head + "s 1 a\ni 1 1 1 1 1\nt 1 0\na 1 1\n+ 0\n- 0\n")};
}

void read(const std::uint8_t* data, std::size_t size) {
    static std::FILE* null_output = std::fopen("/dev/null", "w");
    Input packed(ZSTD_compressBound(size));
    packed.resize(ZSTD_compress(packed.data(), packed.size(), data, size, 1));
    // Inputs of odd length are used as compressed bytes, without compressing them.
    const bool is_raw = size % 2 == 1;
    const std::string path = is_raw ? fuzz::write_input_file(data, size)
                                    : fuzz::write_input_file(packed.data(), packed.size());
    try {
        assay::heap::import_heaptrack(path, null_output);
    } catch (const assay::Error&) {
    }
}

}  // namespace

std::vector<Reader> readers() { return {{"heaptrack", seed_inputs, read}}; }
