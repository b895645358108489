// Tests of the flow control and ordering of messages over libfabric.
#include "transport/ofi/flow.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

using assay::ofi::Flow;

namespace {
constexpr std::size_t largest = 1U << 18;
}

TEST_CASE("messages that arrive in any order are delivered in the order of sending, each once") {
    constexpr std::size_t messages = 200;
    for (unsigned seed = 1; seed <= 100; ++seed) {
        CAPTURE(seed);
        std::mt19937 random(seed);
        Flow sender(1), receiver(1);
        std::vector<std::uint64_t> in_flight, acknowledgements;
        std::vector<int> taken;
        assay::Nanoseconds time = 0;
        const auto remove_random = [&](std::vector<std::uint64_t>& from) {
            const auto position =
                from.begin() + static_cast<std::ptrdiff_t>(random() % from.size());
            const std::uint64_t number_picked = *position;
            from.erase(position);
            return number_picked;
        };
        for (int step = 0; taken.size() < messages && step < 100'000; ++step) {
            time += 100'000;
            if (sender.may_send() && random() % 2) {
                in_flight.push_back(sender.next());
                sender.sent(time);
            }
            REQUIRE(sender.next() - receiver.consumed() <= receiver.depth());
            if (!in_flight.empty() && random() % 2) {
                const std::uint64_t number = remove_random(in_flight);
                REQUIRE(receiver.arrived(number, static_cast<int>(number)));
                REQUIRE_FALSE(receiver.arrived(number, 999));  // a repetition
            }
            while (receiver.front() != Flow::none && random() % 2) {
                taken.push_back(receiver.front());
                receiver.consume(time);
                REQUIRE_FALSE(receiver.arrived(receiver.consumed() - 1, 999));  // an old one
            }
            if (receiver.acknowledgement_due(time)) {
                acknowledgements.push_back(receiver.consumed());
                receiver.acknowledged();
            }
            // Acknowledgements may overtake each other too.
            if (!acknowledgements.empty() && random() % 2)
                REQUIRE(sender.on_acknowledged(remove_random(acknowledgements), time));
        }
        CHECK(taken.size() >= messages);
        std::vector<int> expected(taken.size());
        std::iota(expected.begin(), expected.end(), 0);
        CHECK(taken == expected);
    }
}

TEST_CASE("a sender waits until messages are taken, and invalid numbers are refused") {
    Flow sender(0), receiver(0);
    for (std::uint64_t i = 0; i < receiver.depth(); ++i) {
        CHECK(sender.may_send());
        CHECK(receiver.arrived(sender.next(), static_cast<int>(i)));
        sender.sent(0);
    }
    CHECK_FALSE(sender.may_send());
    CHECK_FALSE(sender.all_acknowledged());
    CHECK_FALSE(receiver.arrived(receiver.depth(), 9));  // further ahead than it may be
    CHECK_FALSE(sender.on_acknowledged(receiver.depth() + 1, 0));
    receiver.consume(1000);
    CHECK_FALSE(receiver.acknowledgement_due(1000));
    CHECK(receiver.acknowledgement_due(1000 + Flow::max_acknowledgement_delay));
    receiver.consume(1000);
    CHECK(receiver.acknowledgement_due(1000));  // half of what the sender may send
    CHECK(sender.on_acknowledged(receiver.consumed(), 0));
    CHECK(sender.may_send());
    std::vector<int> left;
    receiver.clear([&](int buffer) { left.push_back(buffer); });
    std::ranges::sort(left);
    CHECK(left == std::vector{2, 3});
    CHECK(receiver.front() == Flow::none);
}

TEST_CASE("messages are short on a slow link, with a window of as many bytes") {
    Flow flow(Flow::most_halvings);
    assay::Nanoseconds time = 0;
    const auto exchange = [&](assay::Nanoseconds delay) {  // returns the bytes of the last message
        const std::uint64_t first = flow.next();
        std::size_t bytes = 0;
        for (; flow.may_send(); flow.sent(time)) bytes = flow.message_bytes(largest);
        CHECK((flow.next() - first) * bytes == Flow::long_window * largest);
        time += delay;
        CHECK(flow.on_acknowledged(flow.next(), time));
        return bytes;
    };
    for (unsigned k = 0; k < 5; ++k)
        CHECK(exchange(Flow::fast / 2) == largest >> (Flow::most_halvings - std::min(k, 3U)));
    CHECK(flow.submitted() == Flow::most_submitted);
    for (unsigned k = 0; k < 5; ++k) CHECK(exchange(2 * Flow::slow) == largest >> std::min(k, 3U));
    CHECK(flow.submitted() < Flow::most_submitted);
    for (int k = 0; k < 5; ++k) CHECK(exchange(Flow::slow) == largest >> Flow::most_halvings);
}

TEST_CASE("acknowledgements of messages of another length do not change the length") {
    Flow flow(1);
    for (std::uint64_t k = 0; k < flow.depth(); ++k) flow.sent(0);
    for (std::uint64_t k = 1; k <= flow.depth(); ++k) {
        CHECK(flow.on_acknowledged(k, Flow::fast / 2));
        CHECK(flow.message_bytes(largest) == largest);
    }
    flow.sent(0);  // with the new length
    CHECK(flow.on_acknowledged(flow.next(), 2 * Flow::slow));
    CHECK(flow.message_bytes(largest) == largest / 2);
}
