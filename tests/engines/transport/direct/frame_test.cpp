// Tests of the parts of the direct transports: the outbox of a stream, frame headers, matching of
// messages, and the launcher's line with the peers.
#include "transport/direct/frame.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <random>
#include <span>
#include <vector>

#include "core/error.hpp"
#include "transport/direct/matching.hpp"
#include "transport/direct/rendezvous.hpp"

using namespace assay;
using namespace assay::direct;

namespace {

std::vector<std::byte> as_bytes_of(const void* data, std::size_t bytes) {
    const auto* begin = static_cast<const std::byte*>(data);
    return {begin, begin + bytes};
}

}  // namespace

TEST_CASE("gather() returns the bytes of the stream at any offset, after any release") {
    std::mt19937 random(7);
    const auto random_up_to = [&](std::size_t max_value) {
        return std::uniform_int_distribution<std::size_t>(0, max_value)(random);
    };
    for (int round = 0; round < 30; ++round) {
        Outbox outbox;
        std::vector<std::byte> stream;
        std::vector<std::vector<std::byte>> payloads;
        std::vector<Ticket> released;
        Ticket added = 0;
        payloads.reserve(200);
        for (int step = 0; step < 200; ++step) {
            if (random_up_to(2) > 0) {
                auto& payload = payloads.emplace_back(random_up_to(3) ? random_up_to(300) : 0);
                for (std::byte& byte : payload) byte = static_cast<std::byte>(random_up_to(255));
                const Header header{
                    frame_magic, FrameKind::message, 0, added, payload.size(), 0, 0};
                const auto head = as_bytes_of(&header, sizeof header);
                stream.insert(stream.end(), head.begin(), head.end());
                stream.insert(stream.end(), payload.begin(), payload.end());
                if (random_up_to(3) == 0) {
                    outbox.add_copy(header, payload.data(), payload.size());
                    std::ranges::fill(payload, std::byte{0});
                    ++added;
                } else {
                    outbox.add(header, payload.data(), payload.size(), added++);
                }
            }
            CHECK(outbox.end() == stream.size());
            const std::uint64_t from = outbox.begin() + random_up_to(outbox.end() - outbox.begin());
            const std::size_t max_bytes = random_up_to(1000);
            std::array<iovec, 16> pieces;
            int count = 0;
            const std::size_t bytes = outbox.gather(from, max_bytes, pieces, count);
            std::vector<std::byte> gathered;
            for (int i = 0; i < count; ++i) {
                const iovec& piece = pieces[static_cast<std::size_t>(i)];
                const auto part = as_bytes_of(piece.iov_base, piece.iov_len);
                gathered.insert(gathered.end(), part.begin(), part.end());
            }
            REQUIRE(gathered.size() == bytes);
            CHECK(bytes <= max_bytes);
            const bool full = bytes == max_bytes || from + bytes == stream.size() || count == 16;
            CHECK(full);
            CHECK(std::equal(gathered.begin(), gathered.end(),
                             stream.begin() + static_cast<std::ptrdiff_t>(from)));
            outbox.release(outbox.begin() + random_up_to(outbox.end() - outbox.begin()),
                           [&](Ticket ticket) { released.push_back(ticket); });
        }
        outbox.clear([&](Ticket ticket) { released.push_back(ticket); });
        CHECK(released.size() == static_cast<std::size_t>(added));
    }
}

TEST_CASE("what is on its way stays as it was gathered, whatever overtakes the rest") {
    std::mt19937 random(11);
    const auto upto = [&](std::size_t most) {
        return std::uniform_int_distribution<std::size_t>(0, most)(random);
    };
    for (int round = 0; round < 20; ++round) {
        Outbox outbox;
        std::vector<std::vector<std::byte>> payloads;
        payloads.reserve(100);
        std::vector<std::byte> stream;                       // as far as it was gathered
        std::map<int, std::vector<Ticket>> added, released;  // by tag
        std::vector<int> tags;
        const auto on_released = [&](Ticket ticket) {
            const int tag = tags[static_cast<std::size_t>(ticket)];
            released[tag].push_back(ticket);
        };
        for (int step = 0; step < 100; ++step) {
            const std::size_t bytes = upto(1) ? upto(100) : Outbox::max_short + 1 + upto(20'000);
            auto& payload = payloads.emplace_back(bytes);
            for (std::byte& byte : payload) byte = static_cast<std::byte>(upto(255));
            const int tag = static_cast<int>(upto(3));
            added[tag].push_back(static_cast<Ticket>(tags.size()));
            outbox.add({frame_magic, FrameKind::message, 0, tag, bytes, 0, 0}, payload.data(),
                       bytes, static_cast<Ticket>(tags.size()));
            tags.push_back(tag);
            // All that was gathered before is the same.
            for (const bool again : {true, false}) {
                const std::uint64_t from = again ? outbox.begin() : stream.size();
                std::array<iovec, 300> pieces;
                int count = 0;
                const std::size_t most = again ? stream.size() - from : upto(30'000);
                const std::size_t gathered = outbox.gather(from, most, pieces, count);
                std::vector<std::byte> part;
                for (const iovec& piece :
                     std::span(pieces).first(static_cast<std::size_t>(count))) {
                    const auto more = as_bytes_of(piece.iov_base, piece.iov_len);
                    part.insert(part.end(), more.begin(), more.end());
                }
                REQUIRE(part.size() == gathered);
                if (again)
                    CHECK(std::equal(part.begin(), part.end(),
                                     stream.begin() + static_cast<std::ptrdiff_t>(from)));
                else stream.insert(stream.end(), part.begin(), part.end());
            }
            outbox.commit(stream.size());
            outbox.release(outbox.begin() + upto(stream.size() - outbox.begin()), on_released);
        }
        outbox.clear(on_released);
        CHECK(released == added);  // each tag in its order
    }
}

TEST_CASE("a short message goes before long ones of other tags that have not begun") {
    const std::vector<std::byte> payload(20'000);
    Outbox outbox;
    Ticket added = 0;
    const auto add = [&](int tag, std::size_t bytes, FrameKind kind = FrameKind::message) {
        outbox.add({frame_magic, kind, 0, tag, bytes, 0, 0}, payload.data(), bytes, added);
        return added++;
    };
    const Ticket sent = add(70, 20'000), begun = add(71, 20'000);
    // The first is on its way, and a byte of the second.
    outbox.release(outbox.begin() + 1'000, [](Ticket) {});
    outbox.commit(sizeof(Header) + 20'001);
    const Ticket long_one = add(72, 20'000), same_tag = add(18, 20'000),
                 last_long = add(73, 20'000);
    const Ticket control = add(16, 64), second_control = add(18, 64), third_control = add(16, 64);
    const Ticket own_word = add(-5, 0);
    const Ticket window = add(0, 20'000, FrameKind::put), after_window = add(16, 64);
    std::vector<Ticket> order;
    const std::uint64_t end = outbox.end();
    outbox.release(end, [&](Ticket ticket) { order.push_back(ticket); });
    CHECK(order == std::vector<Ticket>{sent, begun, control, long_one, same_tag, second_control,
                                       third_control, last_long, own_word, window, after_window});
    CHECK(outbox.empty());
    CHECK(end == 5 * 20'000 + 4 * 64 + 20'000 + 11 * sizeof(Header));
}

TEST_CASE("a header is valid only with the magic, a known kind and a bounded length") {
    Header header{frame_magic, FrameKind::put, 0, 0, max_payload_bytes, 0, 0};
    CHECK(is_valid(header));
    header.length = max_payload_bytes + 1;
    CHECK_FALSE(is_valid(header));
    header = {frame_magic, static_cast<FrameKind>(99), 0, 0, 1, 0, 0};
    CHECK_FALSE(is_valid(header));
    header = {0x4547, FrameKind::message, 0, 0, 1, 0, 0};  // "GE"
    CHECK_FALSE(is_valid(header));
}

TEST_CASE("a receive that is posted while its message arrives gets the whole message") {
    Matching matching(100);
    REQUIRE(matching.begin(1, 6) == Matching::Begin::accepted);
    std::memcpy(matching.arriving().target, "abc", 3);
    matching.arriving().received = 3;
    char buffer[7] = {};
    CHECK_FALSE(matching.post(5, buffer, 6, 1));
    std::memcpy(matching.arriving().target + 3, "def", 3);
    CHECK(matching.end() == 5);
    CHECK(std::string(buffer) == "abcdef");
    CHECK(matching.unexpected_bytes() == 0);
}

TEST_CASE("unexpected messages are limited, and a message longer than its receive is refused") {
    Matching matching(100);
    CHECK(matching.begin(1, 101) == Matching::Begin::full);
    REQUIRE(matching.begin(1, 60) == Matching::Begin::accepted);
    CHECK(matching.end() == -1);
    CHECK(matching.begin(2, 60) == Matching::Begin::full);
    char small[10];
    CHECK_THROWS_AS(matching.post(1, small, sizeof small, 1), Error);
    CHECK_FALSE(matching.post(2, small, sizeof small, 3));
    CHECK(matching.begin(3, 11) == Matching::Begin::too_long);
    CHECK(matching.clear() == std::vector<Ticket>{2});
}

TEST_CASE("the launcher's line with the peers is read, and invalid ones are refused") {
    const std::string token(64, 'a');
    const auto line = [&](const std::string& rest) {
        return R"({"kind":"peers","token":")" + token + R"(",)" + rest + "}";
    };
    const std::string peers =
        R"("peers":[{"rank":0,"address":"10.0.0.1","port":40000},{"rank":1,"address":"","port":0}])";
    const Membership read = read_membership(line(R"("incarnation":3,)" + peers), 1, 2);
    CHECK(read.rank == 1);
    CHECK(read.size() == 2);
    CHECK(read.incarnation == 3);
    CHECK(read.peers[0].port == 40000);
    CHECK(session::to_text(read.token) == token);
    for (const std::string& bad :
         {std::string("hello"), std::string("{}"), std::string("[]"), line(peers),
          line(R"("incarnation":-1,)" + peers), line(R"("incarnation":0,"peers":[])"),
          line(R"("incarnation":0,"peers":[1,2])"),
          line(R"("incarnation":0,"peers":[{"rank":0,"address":"10.0.0.1","port":70000},)"
               R"({"rank":1,"address":"","port":0}])"),
          line(R"("incarnation":0,"peers":[{"rank":0,"address":"nonsense","port":7},)"
               R"({"rank":1,"address":"","port":0}])"),
          line(R"("incarnation":0,"peers":[{"rank":1,"address":"10.0.0.1","port":1},)"
               R"({"rank":0,"address":"","port":0}])"),
          R"({"kind":"peers","token":"short","incarnation":0,)" + peers + "}"}) {
        CAPTURE(bad);
        CHECK_THROWS_AS(read_membership(bad, 0, 2), Error);
    }
}

TEST_CASE("an interface that does not exist is an error that names it") {
    CHECK(own_address("lo").text() == "127.0.0.1");
    CHECK_THROWS_WITH_AS(own_address("nonsense0"), doctest::Contains("'nonsense0'"), Error);
    const Listener listener(own_address("lo"));
    CHECK(listener.address().port() != 0);
    CHECK(read_address("::1", 9).text() == "::1");
}
