// Tests of reading the token of a run from a file, which no other user may be able to read.
#include "node/run_token.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/error.hpp"

using assay::node::read_run_token;

namespace {

struct File {
    std::string path =
        std::filesystem::temp_directory_path() / ("assay-token-" + std::to_string(getpid()));
    File(const std::string& text, mode_t mode) {
        std::ofstream(path) << text;
        chmod(path.c_str(), mode);
    }
    ~File() { std::filesystem::remove(path); }
};

std::string error_of(const std::string& source) {
    try {
        read_run_token(source);
        return "";
    } catch (const assay::Error& error) {
        return error.what();
    }
}

}  // namespace

TEST_CASE("a token is read from a private file") {
    CHECK_FALSE(read_run_token(""));
    const std::string text(64, 'a');
    for (const std::string end : {"", "\n", "\nmore\n"}) {
        const File file(text + end, 0600);
        const auto token = read_run_token(file.path);
        REQUIRE(token);
        CHECK(assay::session::to_text(*token) == text);
    }
}

TEST_CASE("files that others can read, invalid tokens and other kinds of files are refused") {
    const std::string text(64, 'a');
    for (const mode_t mode : {0644, 0640, 0604, 0620}) {
        const File file(text, mode);
        CHECK(error_of(file.path).starts_with("others may read"));
    }
    for (const std::string& wrong : {std::string(), std::string(63, 'a'), std::string(65, 'a'),
                                     std::string(64, 'A'), "\n" + text}) {
        const File file(wrong, 0600);
        CHECK(error_of(file.path).find("64 hexadecimal digits") != std::string::npos);
    }
    CHECK(error_of("/no/such/file").starts_with("cannot read the token"));
    CHECK(error_of("/dev/zero").starts_with("others may read"));
    CHECK(error_of("/tmp").starts_with("others may read"));
}
