// What both sides say to each other, and that nothing else is taken for it.
#include "node/udp/wire.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <random>

using namespace assay::node;

TEST_CASE("a header is read as it was written, and nothing else for one") {
    std::byte room[DataHeader::bytes];
    DataHeader{7, 0x1122334455667788, 99, 123456789}.put(room);
    DataHeader read;
    CHECK(read.get(room));
    CHECK(read.stream == 7);
    CHECK(read.run == 0x1122334455667788);
    CHECK(read.sequence == 99);
    CHECK(read.sent_at == 123456789);
    CHECK(std::to_integer<int>(room[0]) == 'A');  // of one byte order on every machine
    room[1] ^= std::byte{1};
    CHECK_FALSE(read.get(room));
}

TEST_CASE("every word arrives as it was said") {
    const auto hello = decode(encode(Hello{~0ull, 8900, 1000, 12, 93.9e6, 20, "h\xff"}))->hello;
    REQUIRE(hello);
    CHECK(hello->run == ~0ull);
    CHECK(hello->offered() == doctest::Approx(12 * 93.9e6));
    CHECK(decode(encode(Welcome{1, 12, "h"}))->welcome->sockets == 12);
    CHECK(decode(encode(Refusal{1, "why", "fix"}))->refusal->fix == "fix");
    const auto end = decode(encode(End{5, {1, 2, 3}, 4.5, 6, 0.7, true}))->end;
    REQUIRE(end);
    CHECK(end->sent == std::vector<std::uint64_t>{1, 2, 3});
    CHECK(end->gso);
    CHECK(decode(encode(Report{1, 2, 3, 4.5}))->report->lost == 3);
}

TEST_CASE("a stranger's datagram is nothing, whatever it holds") {
    const std::string good = encode(Hello{1, 8900, 1000, 12, 93.9e6, 20, "h"});
    REQUIRE(decode(good));
    for (const char* text :
         {"", "x", "assay-udp/1 ", "assay-udp/1 {}", "assay-udp/1 [1]", "assay-udp/2 {}",
          R"(assay-udp/1 {"say":"hello","run":1})", R"(assay-udp/1 {"say":"dance","run":1})",
          R"(assay-udp/1 {"say":7,"run":"x"})"})
        CHECK_FALSE(decode(text));
    std::mt19937 random(1);
    for (int i = 0; i < 20'000; ++i) {  // a wrong byte may spoil a name, never the process
        std::string spoilt = good;
        spoilt[random() % spoilt.size()] = static_cast<char>(random());
        spoilt.resize(random() % 4 ? spoilt.size() : random() % spoilt.size());
        const auto word = decode(spoilt);
        if (word && word->hello) CHECK((word->hello->streams >= 1 && word->hello->streams <= 128));
    }
}

TEST_CASE("numbers that cannot be reckoned with are refused") {
    const Hello good{1, 8900, 1000, 12, 93.9e6, 20, "h"};
    for (auto spoil : {+[](Hello& h) { h.streams = 0; }, +[](Hello& h) { h.streams = 100'000; },
                       +[](Hello& h) { h.size = 8; }, +[](Hello& h) { h.size = 1 << 20; },
                       +[](Hello& h) { h.rate = -1; }, +[](Hello& h) { h.seconds = 1e9; }}) {
        Hello bad = good;
        spoil(bad);
        CHECK_FALSE(decode(encode(bad)));
    }
}
