// Tests of the data of storage benchmarks: intact data pass the check, and a wrong byte is found.
#include "storage/content/content.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "core/error.hpp"

using namespace assay::storage;

namespace {

constexpr std::size_t transfer = 3 * 4096 + 1000;  // not a multiple of pages
constexpr std::uint64_t file_offset = 47008 * 3;

// The buffer of a written transfer. Its elements are words, so that it is 8-byte aligned.
std::vector<std::uint64_t> written_transfer(const Content& content, std::uint64_t offset,
                                            std::size_t bytes = transfer) {
    std::vector<std::uint64_t> buffer(bytes / 8 + 2);
    content.fill(reinterpret_cast<std::byte*>(buffer.data()), bytes);
    content.stamp_transfer(reinterpret_cast<std::byte*>(buffer.data()), bytes, offset);
    return buffer;
}

std::byte* bytes_of(std::vector<std::uint64_t>& buffer) {
    return reinterpret_cast<std::byte*>(buffer.data());
}

}  // namespace

TEST_CASE("correct data pass") {
    const Content content(3, 7);
    auto buffer = written_transfer(content, file_offset);
    CHECK_FALSE(content.check_pages(bytes_of(buffer), transfer, file_offset));
    CHECK_FALSE(content.check_bytes(bytes_of(buffer), transfer, file_offset));
}

TEST_CASE("the page words detect another offset, writer or repetition") {
    const Content content(3, 7);
    auto buffer = written_transfer(content, file_offset);
    CHECK(content.check_pages(bytes_of(buffer), transfer, file_offset + 4096));
    CHECK(content.check_pages(bytes_of(buffer), transfer, file_offset + 1));
    CHECK(Content(2, 7).check_pages(bytes_of(buffer), transfer, file_offset));
    CHECK(Content(3, 8).check_pages(bytes_of(buffer), transfer, file_offset));
}

TEST_CASE("a wrong byte is found at its file offset") {
    const Content content(3, 7);
    for (const std::size_t position : {std::size_t{0}, std::size_t{9}, std::size_t{4095},
                                       std::size_t{4096}, std::size_t{4103}, transfer - 1}) {
        auto buffer = written_transfer(content, file_offset);
        bytes_of(buffer)[position] ^= std::byte{0x20};
        const auto mismatch = content.check_bytes(bytes_of(buffer), transfer, file_offset);
        REQUIRE(mismatch);
        CHECK(mismatch->offset == file_offset + position);
        CHECK(__builtin_popcountll(mismatch->expected ^ mismatch->observed) == 1);
    }
}

TEST_CASE("transfers shorter than a word are compared") {
    for (const std::size_t bytes : {1, 3, 7}) {
        const Content content(0, 1);
        auto buffer = written_transfer(content, 100, bytes);
        CHECK_FALSE(content.check_bytes(bytes_of(buffer), bytes, 100));
        bytes_of(buffer)[bytes - 1] ^= std::byte{1};
        CHECK(content.check_bytes(bytes_of(buffer), bytes, 100));
    }
}

TEST_CASE("each type of data passes unchanged, and a wrong byte is found at its file offset") {
    for (const char* name :
         {"random", "timestamp", "offset", "incompressible", "r", "t", "o", "i"}) {
        CAPTURE(name);
        const Content content(3, 7, read_packet(name));
        for (const std::size_t position : {std::size_t{0}, std::size_t{9}, std::size_t{17},
                                           std::size_t{4095}, std::size_t{4096}, transfer - 1}) {
            auto buffer = written_transfer(content, file_offset);
            auto intact = buffer;
            CHECK_FALSE(content.check_bytes(bytes_of(intact), transfer, file_offset));
            bytes_of(buffer)[position] ^= std::byte{0x20};
            const auto mismatch = content.check_bytes(bytes_of(buffer), transfer, file_offset);
            REQUIRE(mismatch);
            CHECK(mismatch->offset == file_offset + position);
        }
    }
    CHECK_THROWS_AS(read_packet("zeros"), assay::Error);
}

TEST_CASE("the words of each type of data") {
    const std::uint64_t identity = std::uint64_t{3} << 32 | 0xac773c41;
    const auto words = [&](Packet packet, std::uint64_t offset) {
        return written_transfer(Content(3, 0xac773c41, packet), offset);
    };
    const auto timestamp = words(Packet::timestamp, 65536);
    CHECK(timestamp[1] == 8);
    CHECK(timestamp[2] == identity);
    const auto offset = words(Packet::offset, 65536);
    CHECK(offset[1] == 65536 + 8);
    CHECK(offset[2] == identity);
    CHECK(words(Packet::random, 0)[1] == words(Packet::random, 65536)[1]);
    CHECK(words(Packet::incompressible, 0)[1] != words(Packet::incompressible, 65536)[1]);
}
