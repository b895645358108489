// Tests of the analysis with malformed traces and heaptrack files: values that no recorder writes.
// These inputs were found by reading the code and by tests/engines/fuzz.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "profile/analyse/analyse.hpp"
#include "profile/analyse/call_tree.hpp"
#include "profile/analyse/globals.hpp"
#include "profile/analyse/heaptrack.hpp"
#include "profile/analyse/metadata.hpp"
#include "profile/heap/python_nodes.hpp"
#include "profile/trace/file.hpp"
#include "temporary_file.hpp"

using namespace assay;
using namespace assay::heap;

namespace {

template <class Write>
nlohmann::json json_of(Write write) {
    char* text = nullptr;
    std::size_t size = 0;
    std::FILE* into = open_memstream(&text, &size);
    write(into);
    std::fclose(into);
    nlohmann::json parsed = nlohmann::json::parse(text, text + size);
    std::free(text);
    return parsed;
}

nlohmann::json imported(const std::string& text) {
    const TemporaryFile file(packed_by_zstd(text));
    return json_of([&](std::FILE* into) { import_heaptrack(file.path, into); });
}

struct Chunk {
    ChunkHeader header;
    Bytes payload;
};

nlohmann::json analysed(const std::vector<Chunk>& chunks, std::size_t garbage = 0) {
    const TemporaryFile file;
    {
        TraceWriter writer(file.path);
        for (const Chunk& chunk : chunks) writer.write(chunk.header, chunk.payload);
    }
    std::ofstream(file.path, std::ios::binary | std::ios::app) << std::string(garbage, 'x');
    return json_of([&](std::FILE* into) { analyse(file.path, ~std::uint64_t{0}, into); });
}

Chunk process_chunk(std::uint32_t page_bytes) {
    ProcessInfo process{.pid = 7, .start_ticks = 1000, .end_ticks = 9000, .end_ns = 5000};
    process.page_bytes = page_bytes;
    Chunk chunk{{.kind = ChunkKind::process, .count = 1}, Bytes(sizeof process)};
    std::memcpy(chunk.payload.data(), &process, sizeof process);
    return chunk;
}

bool has_function(const nlohmann::json& analysis, const std::string& name) {
    const auto& names = analysis["tree"]["locations"]["function"];
    return std::find(names.begin(), names.end(), name) != names.end();
}

const std::string head = "v 10500 3\nX /bin/prog\nI 1000 100\n";

}  // namespace

TEST_CASE("the first instruction pointer of a heaptrack file is resolved like later ones") {
    const auto analysis = imported(head +
                                   "s 4 main\ns 4 leak\ns 1 /a.c\ni 401000 0 1 3 7\n"
                                   "i 402000 0 2 3 9\nt 1 0\nt 2 1\na 64 1\na 20 2\n+ 0\n+ 1\n");
    CHECK(has_function(analysis, "main"));
    CHECK(has_function(analysis, "leak"));
    CHECK(analysis["totals"]["bytes"] == 0x84);
}

TEST_CASE("undefined indices in a heaptrack file are shown as unknown callers") {
    for (const char* stack : {"t 0 0", "t 2 0", "t ffffffffffffffff 0", "t f200000000000001 0",
                              "t f100000000000001 ffffffff", "t 1 ffffffffffffffff"}) {
        CAPTURE(stack);
        const auto analysis = imported(head + "s 4 main\ni 401000 0 1\n" + stack +
                                       "\na 10 1\na 10 ffffffffffffffff\n+ 0\n+ 1\n+ 2\n");
        CHECK(analysis["totals"]["count"] == 2);
    }
}

TEST_CASE("a heaptrack file that is one endless line is one damaged byte") {
    const auto analysis = imported(head + "a 10 0\n+ 0\ns " + std::string(4 << 20, 'a'));
    CHECK(analysis["trace"]["damaged_bytes"] == 1);
}

TEST_CASE("the time of a heaptrack file that is one endless line grows with its length" *
          doctest::test_suite("acceptance")) {
    const std::clock_t start = std::clock();
    imported(head + "a 10 0\n+ 0\ns " + std::string(64 << 20, 'a'));
    // Searching each line from its begin again took a minute for these 64 MiB, and grew
    // quadratically.
    CHECK(std::clock() - start < 20 * CLOCKS_PER_SEC);
}

TEST_CASE("a function name of 900,000 characters is read without recursion") {
    const std::string name(900'000, 'a');
    const auto analysis =
        imported(head + "s dbba0 " + name + "\ni 401000 0 1\nt 1 0\na 10 1\n+ 0\n");
    CHECK(has_function(analysis, name));
}

TEST_CASE("only page sizes that processors have are accepted") {
    for (const std::uint32_t page : {0u, 1u, 15u, 4095u, 4097u, 1u << 17, 1u << 31, ~0u}) {
        std::uint32_t checked = page;
        CHECK_FALSE(check_page_bytes(checked));
        CHECK(checked == 4096);
        CHECK(analysed({process_chunk(page)})["trace"]["unreadable_chunks"] == 1);
    }
    for (std::uint32_t page : {4096u, 16384u, 65536u}) CHECK(check_page_bytes(page));
}

TEST_CASE(
    "a chunk of nodes with too large a number is unreadable, and nothing is allocated for it") {
    // One node, said to be number 2^28: four gigabytes of nodes.
    Bytes node;
    put_varint(node, 1);
    put_varint(node, zigzag(0x1234));
    for (const std::uint64_t first : {std::uint64_t{1} << 24, std::uint64_t{1} << 28,
                                      ~std::uint64_t{0}, ~std::uint64_t{0} / 2}) {
        const auto analysis = analysed(
            {process_chunk(4096),
             {{.kind = ChunkKind::nodes, .count = 1, .first = first, .last = first + 1}, node}},
            1 << 20);
        CHECK(analysis["trace"]["unreadable_chunks"] == 1);
        CHECK(analysis["trace"]["damaged_bytes"] == 1 << 20);
    }
}

TEST_CASE("an object file that is a FIFO is missing, and is not waited for") {
    const TemporaryFile fifo;
    REQUIRE(mkfifo(fifo.path.c_str(), 0600) == 0);
    const std::string line = "0 1000 9000 - " + fifo.path.string() + "\n";
    Bytes node;
    put_varint(node, 1);
    put_varint(node, zigzag(0x1234));
    const auto analysis =
        analysed({process_chunk(4096),
                  {{.kind = ChunkKind::nodes, .count = 1, .first = 3, .last = 4}, node},
                  {{.kind = ChunkKind::modules, .count = 1}, Bytes(line.begin(), line.end())}});
    CHECK(analysis["trace"]["missing_objects"][0] == fifo.path.string());
}

TEST_CASE("a mapping of all memory is counted by its listed pages") {
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    Symbols symbols;
    symbols.add_modules("0 0 ffffffffffffffff - " + self + "\n");
    const Globals globals = find_globals(symbols, "0 ffffffffffffffff 5 x\n", 4096);
    REQUIRE(!globals.objects.empty());
    CHECK(globals.objects.front().resident == 2 * 4096);  // pages 0 and 2
}

TEST_CASE("call trees of half a million frames, of C and of Python, are built without recursion") {
    constexpr stack::StackId depth = 500'000;
    std::vector<stack::Node> nodes(3);
    for (stack::StackId k = 0; k < depth; ++k)
        nodes.push_back({k == 0 ? stack::complete_root : k + 2, 0x1000});
    const stack::StackId native = depth + 2;
    const auto python_frame = [](stack::StackId parent) {
        return stack::Node{parent, with_tag(frame_tag, 7 | entry_bit)};
    };
    for (stack::StackId k = 0; k < depth; ++k)
        nodes.push_back(python_frame(k == 0 ? stack::no_stack : native + k));
    const stack::StackId frames = native + depth, mixed_stack = frames + 1;
    nodes.push_back({native, with_tag(joined_tag, frames)});
    // A mixed stack joins a native stack and the Python frames in it. No trace has mixed stacks
    // below each other.
    for (stack::StackId k = 0; k < depth; ++k)
        nodes.push_back({mixed_stack + k, with_tag(joined_tag, frames)});
    for (const bool is_python : {false, true}) {
        PythonMetadata python;
        Symbols symbols;
        symbols.set_locations(0x1000, {{"recurse", "", 0, "", false}});
        if (is_python) {
            python.eval_addresses.insert(0x1000);
            python.named_stacks.resize(nodes.size());
            python.named_stacks[mixed_stack] = python.named_stacks.back() = true;
        }
        const CallTree tree(nodes, python, symbols);
        CHECK(tree.nodes().size() > depth);
    }
}
