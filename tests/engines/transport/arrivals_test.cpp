// Tests of matching messages with receives: messages that arrive in any order are delivered to the
// receives of their peer and tag.
#include "transport/arrivals.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

using namespace assay;

TEST_CASE("each receive gets the message of its peer and tag, in the order of sending") {
    for (unsigned seed = 0; seed < 50; ++seed) {
        std::mt19937 random(seed);
        struct Message {
            int peer, tag;
            std::uint32_t value;
        };
        std::vector<Message> messages;
        for (std::uint32_t i = 0; i < 60; ++i)
            messages.push_back({static_cast<int>(random() % 4), static_cast<int>(random() % 3), i});
        // The order between two of the same peer and tag is kept.
        std::vector<Message> arriving = messages;
        std::ranges::shuffle(arriving, random);
        const auto in_order = [](const Message& a, const Message& b) { return a.value < b.value; };
        for (int peer = 0; peer < 4; ++peer)
            for (int tag = 0; tag < 3; ++tag) {
                std::vector<Message*> same;
                for (Message& m : arriving)
                    if (m.peer == peer && m.tag == tag) same.push_back(&m);
                std::vector<Message> sorted;
                for (const Message* m : same) sorted.push_back(*m);
                std::ranges::sort(sorted, in_order);
                for (std::size_t i = 0; i < same.size(); ++i) *same[i] = sorted[i];
            }
        Arrivals arrivals(5);
        std::vector<std::uint32_t> received(messages.size(), ~0U);
        std::size_t expected = 0, matched = 0, next = 0;
        while (expected < messages.size() || next < arriving.size()) {
            const bool post =
                next == arriving.size() || (expected < messages.size() && random() % 2 == 0);
            if (post) {
                const Message& m = messages[expected];
                const auto ticket =
                    arrivals.post_receive(&received[expected], sizeof(std::uint32_t), m.peer, m.tag,
                                          static_cast<Ticket>(expected));
                matched += ticket.has_value();
                ++expected;
            } else {
                const Message& m = arriving[next++];
                matched += arrivals
                               .on_message(reinterpret_cast<const std::byte*>(&m.value),
                                           sizeof m.value, m.peer, m.tag)
                               .has_value();
            }
            CHECK(arrivals.needed_requests() <= std::min<std::size_t>(5, expected - matched));
        }
        CHECK(matched == messages.size());
        CHECK(arrivals.needed_requests() == 0);
        for (std::size_t i = 0; i < messages.size(); ++i) CHECK(received[i] == messages[i].value);
    }
}
