// Damaged traces: with any byte changed, or cut off at any byte, the analysis ends and counts what
// it left out.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "planted_trace.hpp"
#include "profile/analyse/analyse.hpp"

using namespace assay;
using namespace assay::heap;

namespace {

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

TEST_CASE("with any byte changed or cut off, the analysis ends normally or in one Error" *
          doctest::test_suite("slow")) {
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

TEST_CASE("with damage under valid checksums the decoders end normally or in one Error" *
          doctest::test_suite("slow")) {
    const std::string path = trace_path();
    const std::vector<PlantedChunk> chunks = planted_chunks();
    write_trace(path, chunks);
    const std::string undamaged = analysis(path);
    REQUIRE(!undamaged.empty());
    constexpr std::uint8_t flips[] = {0x01, 0x80, 0xff};

    // The payload of any chunk. Most of it is numbers, so most damage changes the analysis.
    std::size_t damaged = 0, noticed = 0;
    for (std::size_t k = 0; k < chunks.size(); ++k) {
        for (std::size_t offset = 0; offset < chunks[k].payload.size(); ++offset) {
            for (const std::uint8_t flip : flips) {
                std::vector<PlantedChunk> changed = chunks;
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
                std::vector<PlantedChunk> changed = chunks;
                reinterpret_cast<std::uint8_t*>(&changed[k].header)[offset] ^= flip;
                write_trace(path, changed);
                analysis(path);
            }
        }
    }
    std::filesystem::remove(path);
}
