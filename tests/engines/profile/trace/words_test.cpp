// What a hook has written is what is read, whatever it is.
#include "profile/heap/words.hpp"

#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "profile/trace/format.hpp"

using namespace assay::heap;

namespace {

struct Sink {
    std::vector<Event> events;
    std::vector<std::string> texts;
    void event(const Event& one) { events.push_back(one); }
    void cost(std::uint32_t ticks) { events.back().cost = ticks; }
    void text(Kind, std::uint64_t, std::span<const std::uint8_t> bytes) {
        texts.emplace_back(bytes.begin(), bytes.end());
    }
};

}  // namespace

TEST_CASE(
    "events of all kinds, near and far, after short pauses and long ones, come back as they were") {
    std::mt19937_64 random(11);
    const auto below = [&](int bits) {
        return random() >> (64 - bits) >> random() % static_cast<unsigned>(bits);
    };
    std::vector<std::uint64_t> buffer(1 << 16);
    for (int round = 0; round < 50; ++round) {
        Words words;
        words.start(buffer.data(), buffer.size());
        std::vector<Event> events;
        std::vector<std::string> texts;
        std::uint64_t step = 1000, heap = below(47) & ~std::uint64_t{15};
        while (words.at < words.end) {
            const auto kind = static_cast<Kind>(1 + random() % 9);
            const std::uint64_t steps = below(random() % 8 == 0 ? 40 : 12),
                                place = random() % 4 == 0 ? below(55) : heap + 16 * below(20);
            const bool sized = has_size(kind);
            const std::uint64_t size = !sized               ? 0
                                       : random() % 50 == 0 ? not_reallocated
                                                            : below(random() % 8 == 0 ? 50 : 18);
            const auto stack = static_cast<std::uint32_t>(below(random() % 2 == 0 ? 24 : 5));
            words.put(kind, stack, steps, place, size);
            step += steps;
            events.push_back({step << time_shift,
                              place | static_cast<std::uint64_t>(kind) << kind_shift, size, stack,
                              0});
            if (random() % 8 == 0) {
                events.back().cost = static_cast<std::uint32_t>(below(32));
                words.put_cost(events.back().cost);
            }
            if (random() % 500 == 0) {
                const std::string text(random() % 100, 'x');
                if (words.put_text(Kind::thread, text.data(), text.size())) texts.push_back(text);
            }
        }
        REQUIRE(words.at <= buffer.data() + buffer.size());
        Sink sink;
        expand(std::span(buffer.data(), static_cast<std::size_t>(words.at - buffer.data())), 1000,
               sink);
        REQUIRE(sink.events.size() == events.size());
        for (std::size_t k = 0; k < events.size(); ++k) {
            REQUIRE(sink.events[k].time == events[k].time);
            REQUIRE(sink.events[k].address == events[k].address);
            REQUIRE(sink.events[k].size == events[k].size);
            REQUIRE(sink.events[k].stack == events[k].stack);
            REQUIRE(sink.events[k].cost == events[k].cost);
        }
        REQUIRE(sink.texts == texts);
    }
}

TEST_CASE("words that nobody has written are read to their end, or left") {
    std::mt19937_64 random(12);
    for (int round = 0; round < 2000; ++round) {
        std::vector<std::uint64_t> words(random() % 64);
        for (std::uint64_t& word : words) word = random();
        Sink sink;
        sink.events.push_back({});
        expand(words, 0, sink);
        CHECK(sink.events.size() <= words.size() + 1);
    }
}
