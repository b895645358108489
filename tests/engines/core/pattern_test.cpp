// Tests of the data pattern of messages: stamped data pass the check, and every wrong byte is
// found.
#include "core/pattern.hpp"

#include <doctest/doctest.h>

#include <random>
#include <vector>

using namespace assay;

namespace {

// 8-byte aligned, as message buffers are.
struct Buffer {
    explicit Buffer(std::size_t bytes)
        : words((bytes + 7) / 8), data(reinterpret_cast<std::byte*>(words.data())) {}
    std::vector<std::uint64_t> words;
    std::byte* data;
};

constexpr std::size_t sizes[] = {1, 2, 4, 7, 8, 9, 63, 64, 65, 127, 128, 1000, 4096, 65536 + 5};

}  // namespace

TEST_CASE("a stamped buffer passes the check, at every size") {
    for (const std::size_t size : sizes) {
        Buffer buffer(size);
        stamp(buffer.data, size, stamp_key(3, 4, 17));
        CHECK_FALSE(first_wrong_byte(buffer.data, size, stamp_key(3, 4, 17)));
    }
}

TEST_CASE("every single flipped bit is detected and located") {
    std::mt19937_64 random(1);
    for (const std::size_t size : sizes) {
        Buffer buffer(size);
        const std::uint64_t key = stamp_key(0, 1, random());
        stamp(buffer.data, size, key);
        for (int k = 0; k < 300; ++k) {
            const std::size_t offset = random() % size;
            const std::byte bit{static_cast<unsigned char>(1u << (random() % 8))};
            buffer.data[offset] ^= bit;
            CHECK(first_wrong_byte(buffer.data, size, key) == offset);
            buffer.data[offset] ^= bit;
        }
        CHECK_FALSE(first_wrong_byte(buffer.data, size, key));
    }
}

TEST_CASE("the first of several wrong bytes is located") {
    Buffer buffer(4096);
    stamp(buffer.data, 4096, 5);
    buffer.data[4000] ^= std::byte{1};
    buffer.data[130] ^= std::byte{1};
    CHECK(first_wrong_byte(buffer.data, 4096, 5) == 130);
}

TEST_CASE("stamping writes no byte beyond the message") {
    for (const std::size_t size : sizes) {
        Buffer buffer(size + 64);
        stamp(buffer.data, size, 7);
        for (std::size_t offset = size; offset < size + 64; ++offset)
            CHECK(buffer.data[offset] == std::byte{0});
    }
}

TEST_CASE("the first word differs in earlier, shifted and other pairs' messages") {
    Buffer buffer(256);
    stamp(buffer.data, 256, stamp_key(1, 2, 8));
    CHECK(first_wrong_byte(buffer.data, 256, stamp_key(1, 2, 9)).value() < 8);
    CHECK(first_wrong_byte(buffer.data, 256, stamp_key(2, 1, 8)).value() < 8);
    CHECK(first_wrong_byte(buffer.data, 256, stamp_key(1, 3, 8)).value() < 8);
    CHECK(first_wrong_byte(buffer.data + 8, 240, stamp_key(1, 2, 8)).value() < 8);
}

TEST_CASE("a short message that never arrived is detected, whatever the buffer held") {
    for (const std::size_t size : {1, 2, 4, 7})
        for (std::uint64_t message = 0; message < 2000; ++message) {
            Buffer buffer(size);
            poison(buffer.data, size, stamp_key(0, 1, message));
            CHECK(first_wrong_byte(buffer.data, size, stamp_key(0, 1, message)) == 0);
        }
}

TEST_CASE("stamped_word gives the word that was stamped at an offset") {
    Buffer buffer(64);
    stamp(buffer.data, 64, 11);
    for (std::size_t k = 0; k < 8; ++k) CHECK(buffer.words[k] == stamped_word(11, 8 * k));
}
