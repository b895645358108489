// Tests of reading lines from plain and compressed files.
#include "profile/analyse/packed_lines.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "temporary_file.hpp"

using namespace assay::heap;

namespace {

constexpr std::string_view text = "v 10400 3\nX program\r\n\n# end\n";
const std::vector<std::string> lines_of_text{"v 10400 3", "X program", "", "# end"};

std::string packed_by_gzip(std::string_view bytes) {
    const TemporaryFile file;
    const gzFile packer = gzopen(file.path.c_str(), "wb");
    gzwrite(packer, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(packer);
    std::ifstream packed(file.path, std::ios::binary);
    return {std::istreambuf_iterator<char>(packed), {}};
}

struct Read {
    std::vector<std::string> lines;
    bool cut_off, damaged;
    std::string rest;
};

Read read(std::string_view bytes) {
    const TemporaryFile file(bytes);
    PackedLines reader(file.path);
    Read result;
    for (std::string_view line; reader.next(line);) result.lines.emplace_back(line);
    result.cut_off = reader.cut_off();
    result.damaged = reader.damaged();
    result.rest = reader.rest();
    return result;
}

// The error of opening a file, as the user sees it.
std::string error_of(const std::string& path) {
    try {
        PackedLines reader(path);
    } catch (const assay::Error& error) {
        return std::string(error.what()) + "; fix: " + error.fix;
    }
    return {};
}

}  // namespace

TEST_CASE("lines are the same however the file is packed") {
    for (const auto& bytes : {std::string(text), packed_by_zstd(text), packed_by_gzip(text)}) {
        const Read result = read(bytes);
        CHECK(result.lines == lines_of_text);
        CHECK_FALSE(result.cut_off);
        CHECK_FALSE(result.damaged);
    }
}

TEST_CASE("a file that lacks its end gives the lines before it") {
    SUBCASE("plain") {
        const Read result = read(text.substr(0, text.size() - 2));
        CHECK(result.lines == std::vector(lines_of_text.begin(), lines_of_text.end() - 1));
        CHECK(result.rest == "# en");
        CHECK(result.cut_off);
    }
    SUBCASE("packed") {
        std::string many;
        for (int k = 0; k < 100'000; ++k) many += std::to_string(k * 7919 % 100'003) + "\n";
        for (std::string packed : {packed_by_zstd(many), packed_by_gzip(many)}) {
            packed.resize(packed.size() / 2);
            const Read result = read(packed);
            CHECK(result.cut_off);
            CHECK_FALSE(result.damaged);
            REQUIRE(result.lines.size() > 10'000);
            CHECK(result.lines.size() < 90'000);
            CHECK(result.lines[9'999] == std::to_string(9'999 * 7919 % 100'003));
        }
    }
}

TEST_CASE("what cannot be read is refused with what to do") {
    CHECK(error_of("/nonexistent/trace") ==
          "cannot read /nonexistent/trace: No such file or directory; fix: ");
    const TemporaryFile by_xz(
        std::string_view("\xfd"
                         "7zXZ\0rest",
                         10));
    CHECK(error_of(by_xz.path) == by_xz.path.string() +
                                      " is compressed by xz; fix: unpack it: unxz " +
                                      by_xz.path.string());
    std::array<int, 2> ends{};
    REQUIRE(pipe(ends.data()) == 0);
    REQUIRE(write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    const std::string path = "/dev/fd/" + std::to_string(ends[0]);
    CHECK(error_of(path) == path + " is a pipe; fix: write what comes out of it to a file");
    for (const int end : ends) close(end);
}
