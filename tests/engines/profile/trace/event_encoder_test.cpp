// decode_buffer returns the events that EventEncoder wrote.
#include "profile/heap/event_encoder.hpp"

#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "profile/heap/event_decoder.hpp"
#include "profile/trace/format.hpp"

using namespace assay::heap;

namespace {

struct Sink {
    std::vector<Event> events;
    std::vector<std::string> texts;
    void event(const Event& event) { events.push_back(event); }
    void call_ticks(std::uint32_t ticks) { events.back().call_ticks = ticks; }
    void text(Kind, std::uint64_t, std::span<const std::uint8_t> bytes) {
        texts.emplace_back(bytes.begin(), bytes.end());
    }
};

}  // namespace

TEST_CASE("events of all kinds, addresses, sizes and times are decoded as they were encoded") {
    std::mt19937_64 random(11);
    const auto below = [&](int bits) {
        return random() >> (64 - bits) >> random() % static_cast<unsigned>(bits);
    };
    std::vector<std::uint64_t> buffer(1 << 16);
    for (int round = 0; round < 50; ++round) {
        EventEncoder encoder;
        encoder.start(buffer.data(), buffer.size());
        std::vector<Event> events;
        std::vector<std::string> texts;
        std::uint64_t step = 1000, heap = below(47) & ~std::uint64_t{15};
        while (encoder.next < encoder.limit) {
            const auto kind = static_cast<Kind>(1 + random() % 9);
            const std::uint64_t steps = below(random() % 8 == 0 ? 40 : 12),
                                address = random() % 4 == 0 ? below(55) : heap + 16 * below(20);
            const bool sized = has_size(kind);
            const std::uint64_t size = !sized               ? 0
                                       : random() % 50 == 0 ? not_reallocated
                                                            : below(random() % 8 == 0 ? 50 : 18);
            const auto stack = static_cast<std::uint32_t>(below(random() % 2 == 0 ? 24 : 5));
            encoder.put(kind, stack, steps, address, size);
            step += steps;
            events.push_back({step << time_shift,
                              address | static_cast<std::uint64_t>(kind) << kind_shift, size, stack,
                              0});
            if (random() % 8 == 0) {
                events.back().call_ticks = static_cast<std::uint32_t>(below(32));
                encoder.put_call_ticks(events.back().call_ticks);
            }
            if (random() % 500 == 0) {
                const std::string text(random() % 100, 'x');
                if (encoder.put_text(Kind::thread, text.data(), text.size())) texts.push_back(text);
            }
        }
        REQUIRE(encoder.next <= buffer.data() + buffer.size());
        Sink sink;
        decode_buffer(
            std::span(buffer.data(), static_cast<std::size_t>(encoder.next - buffer.data())), 1000,
            sink);
        REQUIRE(sink.events.size() == events.size());
        for (std::size_t k = 0; k < events.size(); ++k) {
            REQUIRE(sink.events[k].time == events[k].time);
            REQUIRE(sink.events[k].address == events[k].address);
            REQUIRE(sink.events[k].size == events[k].size);
            REQUIRE(sink.events[k].stack == events[k].stack);
            REQUIRE(sink.events[k].call_ticks == events[k].call_ticks);
        }
        REQUIRE(sink.texts == texts);
    }
}

TEST_CASE("random words are decoded without reading beyond their end") {
    std::mt19937_64 random(12);
    for (int round = 0; round < 2000; ++round) {
        std::vector<std::uint64_t> words(random() % 64);
        for (std::uint64_t& word : words) word = random();
        Sink sink;
        sink.events.push_back({});
        decode_buffer(words, 0, sink);
        CHECK(sink.events.size() <= words.size() + 1);
    }
}
