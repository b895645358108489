// Damaged traces: with any byte changed, or cut off at any byte, the analysis ends and counts what
// it left out.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "profile/analyse/analyse.hpp"
#include "profile/trace/file.hpp"

using namespace assay;
using namespace assay::heap;

namespace {

std::span<const std::uint8_t> bytes_of(const std::string& text) {
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

struct Chunk {
    ChunkHeader header;
    Bytes payload;
};

// Chunks of all kinds: a process, two stacks, recorded (raw) events and packed events.
std::vector<Chunk> planted_chunks() {
    std::vector<Chunk> chunks;
    const auto add = [&](const ChunkHeader& header, std::span<const std::uint8_t> payload) {
        chunks.push_back({header, Bytes(payload.begin(), payload.end())});
    };
    ProcessInfo process{.pid = 7,
                        .parent = 1,
                        .start_ticks = 1000,
                        .start_ns = 5,
                        .end_ticks = 9000,
                        .end_ns = 5000,
                        .end_state = 1};
    Bytes payload(sizeof process);
    std::memcpy(payload.data(), &process, sizeof process);
    add({.kind = ChunkKind::process, .count = 1}, payload);
    payload.clear();
    for (const std::uint64_t parent : {1, 3}) {
        put_varint(payload, parent);
        put_varint(payload, zigzag(0x1234));
    }
    add({.kind = ChunkKind::nodes, .count = 2, .first = 3, .last = 5}, payload);
    add({.kind = ChunkKind::modules, .count = 1}, bytes_of("0 1000 9000 - /nowhere/object.so\n"));
    add({.kind = ChunkKind::thread, .count = 1}, bytes_of("worker"));
    add({.kind = ChunkKind::mappings, .count = 1, .first = 2000},
        bytes_of("1000 5000 3f /nowhere/object.so\n"));
    std::vector<std::uint64_t> raw = {8 | code_of(4) << 4 | 4 << 13,
                                      9 | 0x7f0000000000ull << 4};  // define_stack, set_base
    for (std::uint64_t k = 0; k < 20; ++k) {
        raw.push_back(1 | code_of(4) << 4 | 3 << 13 | 100ull << 25 |
                      7ull << 44);    // malloc, at the last address + 112
        raw.push_back(10 | 55 << 4);  // call_ticks
        if (k % 3 != 0) raw.push_back(6 | code_of(4) << 4 | 2 << 13);  // free
    }
    for (const std::uint64_t word : std::initializer_list<std::uint64_t>{
             50'000 << 4, 11 | 1 << 4 | 4 << 8, 0x7fff12345670, 1ull << 33})
        raw.push_back(word);  // advance_time, full_event
    add({.kind = ChunkKind::raw, .count = static_cast<std::uint32_t>(raw.size()), .first = 70},
        {reinterpret_cast<const std::uint8_t*>(raw.data()), raw.size() * sizeof raw[0]});
    std::vector<Event> events;
    for (std::uint64_t k = 0; k < 20; ++k)
        events.push_back(
            {4000 + 16 * k, block_id(1, k) | std::uint64_t{1} << kind_shift, 50, 4, 0});
    payload.clear();
    encode_columns(events, 1, events.front().time, payload);
    add({.kind = ChunkKind::events,
         .thread = 1,
         .count = 20,
         .first = events.front().time,
         .last = events.back().time},
        payload);
    payload.clear();
    for (const std::uint64_t value : {0, 200, 100}) put_varint(payload, value);
    add({.kind = ChunkKind::samples, .count = 1, .first = 3000, .last = 3000}, payload);
    return chunks;
}

// Checksums are valid for damaged chunks, too.
void write_trace(const std::string& path, const std::vector<Chunk>& chunks) {
    std::filesystem::remove(path);
    TraceWriter writer(path);
    for (const Chunk& chunk : chunks) writer.write(chunk.header, chunk.payload);
}

// In memory: thousands of traces are written.
std::string trace_path() {
    const std::filesystem::path memory = "/dev/shm";
    return (std::filesystem::is_directory(memory) ? memory
                                                  : std::filesystem::temp_directory_path()) /
           ("assay-damage-" + std::to_string(getpid()) + ".heap");
}

// The analysis of a trace as JSON; "" if it ends in an Error.
std::string analysis(const std::string& path) {
    char* text = nullptr;
    std::size_t size = 0;
    std::FILE* into = open_memstream(&text, &size);
    REQUIRE(into != nullptr);
    bool is_readable = true;
    try {
        analyse(path, ~std::uint64_t{0}, into);
    } catch (const Error&) {
        is_readable = false;
    }
    std::fclose(into);
    std::string output = is_readable ? std::string(text, size) : "";
    std::free(text);
    CHECK((output.empty() || nlohmann::json::accept(output)));
    return output;
}

}  // namespace

TEST_CASE("with any byte changed or cut off, the analysis ends normally or in one Error") {
    const std::string path = trace_path();
    write_trace(path, planted_chunks());
    std::ifstream in(path, std::ios::binary);
    const std::string trace((std::istreambuf_iterator<char>(in)), {});
    std::FILE* nowhere = std::fopen("/dev/null", "w");
    REQUIRE(nowhere != nullptr);
    const auto is_analysed = [&](const std::string& content) {
        std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
        try {
            analyse(path, ~std::uint64_t{0}, nowhere);
            return true;
        } catch (const Error&) {
            return false;
        }
    };
    CHECK(is_analysed(trace));
    std::size_t readable = 0;
    for (std::size_t offset = 0; offset < trace.size(); ++offset) {
        for (const char flip : {char(0x01), char(0x80), char(0xff)}) {
            std::string changed = trace;
            changed[offset] = static_cast<char>(changed[offset] ^ flip);
            readable += is_analysed(changed);
        }
        is_analysed(trace.substr(0, offset));
    }
    CHECK(readable == 3 * trace.size());  // one chunk is lost, never the whole trace
    std::fclose(nowhere);
    std::filesystem::remove(path);
}

TEST_CASE("with damage under valid checksums the decoders end normally or in one Error") {
    const std::string path = trace_path();
    const std::vector<Chunk> chunks = planted_chunks();
    write_trace(path, chunks);
    const std::string undamaged = analysis(path);
    REQUIRE(!undamaged.empty());
    constexpr std::uint8_t flips[] = {0x01, 0x80, 0xff};

    // The payload of any chunk. Most of it is numbers, so most damage changes the analysis.
    std::size_t damaged = 0, noticed = 0;
    for (std::size_t k = 0; k < chunks.size(); ++k) {
        for (std::size_t offset = 0; offset < chunks[k].payload.size(); ++offset) {
            for (const std::uint8_t flip : flips) {
                std::vector<Chunk> changed = chunks;
                changed[k].payload[offset] ^= flip;
                write_trace(path, changed);
                ++damaged;
                noticed += analysis(path) != undamaged;
            }
        }
    }
    CHECK(noticed > damaged / 2);

    // The fields of a header that describe its payload: kind, thread, count, first and last.
    for (std::size_t k = 0; k < chunks.size(); ++k) {
        for (std::size_t offset = offsetof(ChunkHeader, kind);
             offset < offsetof(ChunkHeader, raw_bytes); ++offset) {
            for (const std::uint8_t flip : flips) {
                std::vector<Chunk> changed = chunks;
                reinterpret_cast<std::uint8_t*>(&changed[k].header)[offset] ^= flip;
                write_trace(path, changed);
                analysis(path);
            }
        }
    }
    std::filesystem::remove(path);
}
