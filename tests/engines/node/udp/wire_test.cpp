// Tests of the UDP protocol: messages are decoded as they were encoded, and other datagrams are
// refused.
#include "node/udp/wire.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <random>

using namespace assay::node;

TEST_CASE("a header is read as it was written, and other data are refused") {
    std::byte buffer[DataHeader::bytes];
    DataHeader{.stream = 7, .run_number = 0x1122334455667788, .sequence = 99, .sent_at = 123456789}
        .put(buffer);
    DataHeader read;
    CHECK(read.get(buffer));
    CHECK(read.stream == 7);
    CHECK(read.run_number == 0x1122334455667788);
    CHECK(read.sequence == 99);
    CHECK(read.sent_at == 123456789);
    CHECK(std::to_integer<int>(buffer[0]) == 'A');  // big-endian: the magic word begins with 'A'
    buffer[1] ^= std::byte{1};
    CHECK_FALSE(read.get(buffer));
}

TEST_CASE("every control message is decoded as it was encoded") {
    const auto hello = decode(encode(Hello{~0ull, 8900, 1000, 12, 93.9e6, 20, "h\xff"}))->hello;
    REQUIRE(hello);
    CHECK(hello->run_number == ~0ull);
    CHECK(hello->requested_rate() == doctest::Approx(12 * 93.9e6));
    CHECK(decode(encode(Welcome{1, 12, "h"}))->welcome->sockets == 12);
    CHECK(decode(encode(Refusal{1, "reason", "fix"}))->refusal->fix == "fix");
    const auto end = decode(encode(End{5, {1, 2, 3}, 4.5, 6, 0.7, true}))->end;
    REQUIRE(end);
    CHECK(end->sent == std::vector<std::uint64_t>{1, 2, 3});
    CHECK(end->gso);
    CHECK(decode(encode(Report{1, 2, 3, 4.5}))->report->lost == 3);
}

TEST_CASE("foreign datagrams are refused") {
    const std::string valid = encode(Hello{1, 8900, 1000, 12, 93.9e6, 20, "h"});
    REQUIRE(decode(valid));
    for (const char* text :
         {"", "x", "assay-udp/2 ", "assay-udp/2 {}", "assay-udp/2 [1]", "assay-udp/1 {}",
          R"(assay-udp/2 {"type":"hello","run":1})", R"(assay-udp/2 {"type":"dance","run":1})",
          R"(assay-udp/2 {"type":7,"run":"x"})"})
        CHECK_FALSE(decode(text));
    std::mt19937 random(1);
    // A damaged datagram may decode to other values, but not to values out of bounds.
    for (int i = 0; i < 20'000; ++i) {
        std::string damaged = valid;
        damaged[random() % damaged.size()] = static_cast<char>(random());
        damaged.resize(random() % 4 ? damaged.size() : random() % damaged.size());
        const auto message = decode(damaged);
        if (message && message->hello)
            CHECK((message->hello->streams >= 1 && message->hello->streams <= 128));
    }
}

TEST_CASE("implausible numbers are refused") {
    const Hello valid{1, 8900, 1000, 12, 93.9e6, 20, "h"};
    for (auto damage : {+[](Hello& h) { h.streams = 0; }, +[](Hello& h) { h.streams = 100'000; },
                        +[](Hello& h) { h.size = 8; }, +[](Hello& h) { h.size = 1 << 20; },
                        +[](Hello& h) { h.rate = -1; }, +[](Hello& h) { h.seconds = 1e9; }}) {
        Hello invalid = valid;
        damage(invalid);
        CHECK_FALSE(decode(encode(invalid)));
    }
}

TEST_CASE("numbers that no integer holds are refused") {
    const std::string text = encode(Hello{1, 8900, 1000, 12, 93.9e6, 20, "h"});
    REQUIRE(decode(text));
    for (const char* number : {"7e20", "-1", "1e999", "0.5", "18446744073709551616"}) {
        std::string changed = text;
        changed.replace(changed.find("1000"), 4, number);
        CAPTURE(changed);
        CHECK_FALSE(decode(changed));
    }
    std::string streams = text;
    streams.replace(streams.find(":12,"), 4, ":4294967297,");
    CHECK_FALSE(decode(streams));
}

TEST_CASE("control messages are signed with the run's token, and others are refused") {
    assay::session::Token token, other;
    token.bytes.fill(1);
    other.bytes.fill(2);
    const Seal seal(token);
    const std::string text = encode(Hello{1, 8900, 1000, 12, 93.9e6, 20, "h"}),
                      signed_text = seal.sign(text);
    REQUIRE(seal.open(signed_text));
    CHECK(seal.open(signed_text)->hello->messages_per_stream == 1000);
    CHECK_FALSE(seal.open(text));  // not signed
    CHECK_FALSE(seal.open(Seal(other).sign(text)));
    CHECK_FALSE(seal.open(encode(Hello{2, 8900, 1000, 12, 93.9e6, 20, "h"}) +
                          signed_text.substr(text.size())));  // another message's signature
    for (std::size_t k = 0; k < signed_text.size(); ++k) {
        std::string changed = signed_text;
        changed[k] = static_cast<char>(changed[k] ^ 1);
        CHECK_FALSE(seal.open(changed));
        CHECK_FALSE(seal.open(signed_text.substr(0, k)));
    }
    CHECK(Seal(std::nullopt).open(Seal(std::nullopt).sign(text)));
}
