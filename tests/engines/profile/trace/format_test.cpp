// Traces: written events are read back, and damaged parts are left out.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <random>

#include "core/error.hpp"
#include "profile/trace/event_merger.hpp"
#include "profile/trace/file.hpp"

using namespace assay;
using namespace assay::heap;

namespace {

struct Directory {
    std::string path = "/dev/shm/assay-trace-XXXXXX";  // in memory: thousands are written
    Directory() { REQUIRE(mkdtemp(path.data()) != nullptr); }
    ~Directory() { [[maybe_unused]] const int status = std::system(("rm -rf " + path).c_str()); }
    std::string operator/(const std::string& id) const { return path + "/" + id; }
};

Event event(Kind kind, std::uint64_t time, std::uint64_t address, std::uint64_t size,
            std::uint32_t stack, std::uint32_t call_ticks = 0) {
    return {time, address | (static_cast<std::uint64_t>(kind) << kind_shift),
            has_size(kind) ? size : 0, stack, call_ticks};
}

std::vector<Event> random_events(std::mt19937_64& random, std::size_t count, std::uint64_t& time) {
    constexpr Kind kinds[] = {Kind::malloc,  Kind::calloc, Kind::memalign, Kind::realloc_from,
                              Kind::realloc, Kind::free,   Kind::map,      Kind::unmap};
    std::vector<Event> events;
    for (std::size_t k = 0; k < count; ++k) {
        time += (random() % 5000) << time_shift;
        const std::uint64_t address = random() >> 17;
        events.push_back(event(kinds[random() % 8], time, address, random() >> (random() % 64),
                               static_cast<std::uint32_t>(random()),
                               random() % 3 == 0 ? static_cast<std::uint32_t>(random()) : 0));
    }
    return events;
}

bool same(const Event& a, const Event& b) {
    return a.time == b.time && a.address == b.address && a.size == b.size && a.stack == b.stack &&
           a.call_ticks == b.call_ticks;
}

void write_events(TraceWriter& writer, std::uint32_t thread, const std::vector<Event>& events) {
    Bytes payload;
    encode_columns(events, thread, events.front().time, payload);
    writer.write({.kind = ChunkKind::events,
                  .thread = thread,
                  .count = static_cast<std::uint32_t>(events.size()),
                  .first = events.front().time,
                  .last = events.back().time},
                 payload);
}

}  // namespace

TEST_CASE("columns are decoded as they were encoded") {
    std::mt19937_64 random(1);
    for (int round = 0; round < 200; ++round) {
        std::uint64_t time = (random() >> 8) & ~std::uint64_t{15};
        auto events = random_events(random, 1 + random() % 300, time);
        // Some blocks have ids: new ones the next number, others any existing one.
        std::uint64_t number = random() % 1000;
        for (Event& event : events) {
            const Kind kind = kind_of(event);
            if (random() % 2 == 0) continue;
            const bool is_new = is_allocation(kind, block_id_flag, event.size);
            const std::uint64_t id = is_new ? block_id(7, number++)
                                            : block_id(static_cast<std::uint32_t>(5 + random() % 3),
                                                       random() % (number + 1));
            if (kind != Kind::map && kind != Kind::unmap)
                event.address = id | static_cast<std::uint64_t>(kind) << kind_shift;
        }
        Bytes bytes;
        encode_columns(events, 7, events.front().time, bytes);
        std::vector<Event> decoded;
        REQUIRE(decode_columns(bytes, static_cast<std::uint32_t>(events.size()), 7,
                               events.front().time, decoded));
        REQUIRE(decoded.size() == events.size());
        for (std::size_t k = 0; k < events.size(); ++k) REQUIRE(same(events[k], decoded[k]));
        // Truncated columns are refused, and nothing beyond their end is read.
        for (std::size_t n = 0; n < bytes.size(); n += 1 + bytes.size() / 50)
            CHECK_FALSE(decode_columns(std::span(bytes).first(n),
                                       static_cast<std::uint32_t>(events.size()), 7, 0, decoded));
    }
}

TEST_CASE("threads are merged in the order of time, frees before allocations") {
    const Directory directory;
    const std::string path = directory / "a.heap";
    {
        TraceWriter writer(path);
        write_events(
            writer, 1,
            {event(Kind::malloc, 160, 0x1000, 8, 5), event(Kind::malloc, 640, 0x2000, 8, 5)});
        write_events(writer, 2,
                     {event(Kind::free, 320, 0x1000, 0, 6), event(Kind::free, 640, 0x3000, 0, 6)});
        write_events(writer, 1, {event(Kind::malloc, 960, 0x4000, 8, 5)});
    }
    TraceReader reader(path);
    EventMerger merger(reader);
    std::vector<std::pair<std::uint64_t, Kind>> order;
    merger.for_each(
        [&](std::uint32_t, const Event& event) { order.emplace_back(event.time, kind_of(event)); });
    const std::vector<std::pair<std::uint64_t, Kind>> expected = {{160, Kind::malloc},
                                                                  {320, Kind::free},
                                                                  {640, Kind::free},
                                                                  {640, Kind::malloc},
                                                                  {960, Kind::malloc}};
    CHECK(order == expected);
}

TEST_CASE("only whole chunks are read of a trace with a flipped byte or of any length") {
    const Directory directory;
    const std::string path = directory / "a.heap", damaged = directory / "b.heap";
    std::mt19937_64 random(2);
    std::uint64_t time = 1 << 20;
    std::size_t written = 0;
    {
        TraceWriter writer(path);
        for (std::uint32_t thread = 0; thread < 4; ++thread) {
            const auto events = random_events(random, 20, time);
            written += events.size();
            write_events(writer, thread, events);
        }
    }
    std::ifstream in(path, std::ios::binary);
    const std::string trace((std::istreambuf_iterator<char>(in)), {});
    const auto read = [&](const std::string& bytes) {
        std::ofstream(damaged, std::ios::binary) << bytes;
        std::size_t events = 0;
        try {
            TraceReader reader(damaged);
            EventMerger merger(reader);
            merger.for_each([&](std::uint32_t, const Event&) { ++events; });
        } catch (const Error&) {
        }
        return events;
    };
    REQUIRE(read(trace) == written);
    for (std::size_t offset = 0; offset < trace.size(); ++offset) {
        std::string flipped = trace;
        flipped[offset] = static_cast<char>(~flipped[offset]);
        REQUIRE(read(flipped) == written - 20);  // one chunk of four, never another's
    }
    for (std::size_t bytes = 0; bytes < trace.size(); bytes += 7)
        REQUIRE(read(trace.substr(0, bytes)) % 20 == 0);
    CHECK_THROWS_AS(TraceReader(directory / "none.heap"), Error);
}
