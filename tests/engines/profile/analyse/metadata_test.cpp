// Times of a trace: those of page faults as ticks, and the end of a trace whose recorder was
// killed.
#include "profile/analyse/metadata.hpp"

#include <doctest/doctest.h>

#include <initializer_list>

#include "planted_trace.hpp"
#include "profile/trace/varint.hpp"

using namespace assay::heap;

namespace {

// The clocks of a process from its start on: a tick is 0.5 ns.
PlantedChunk process_chunk(std::uint64_t end_ticks, std::uint64_t end_ns) {
    const ProcessInfo process{.pid = 7,
                              .parent = 1,
                              .start_ticks = 1000,
                              .start_ns = 5'000'000,
                              .end_ticks = end_ticks,
                              .end_ns = end_ns};
    Bytes payload(sizeof process);
    std::memcpy(payload.data(), &process, sizeof process);
    return {{.kind = ChunkKind::process, .count = 1}, payload};
}

// Page faults of thread 9 at these times.
PlantedChunk fault_chunk(std::initializer_list<std::uint64_t> times) {
    PlantedChunk chunk{{.kind = ChunkKind::faults,
                        .count = static_cast<std::uint32_t>(times.size()),
                        .first = *times.begin()},
                       {}};
    std::uint64_t before = chunk.header.first;
    for (const std::uint64_t time : times) {
        put_varint(chunk.payload, zigzag(static_cast<std::int64_t>(time - before)));
        before = time;
        put_varint(chunk.payload, 9);
        for (std::size_t k = 0; k < 2 + fault_stack_words; ++k) put_varint(chunk.payload, 0);
    }
    return chunk;
}

PlantedChunk event_chunk(std::uint64_t time) {
    Bytes payload;
    encode_columns(std::vector<Event>{{time, block_id(1, 0), 50, 4, 0}}, 1, time, payload);
    return {{.kind = ChunkKind::events, .thread = 1, .count = 1, .first = time, .last = time},
            payload};
}

TraceMetadata metadata_of(const std::vector<PlantedChunk>& chunks) {
    const std::string path = trace_path();
    write_trace(path, chunks);
    TraceReader trace(path);
    std::filesystem::remove(path);
    Symbols symbols;
    return read_metadata(trace, symbols);
}

}  // namespace

TEST_CASE("the time of a page fault is told in ticks, at the rate of the process's clocks") {
    const TraceMetadata metadata =
        metadata_of({process_chunk(9000, 5'004'000), fault_chunk({5'000'100, 5'003'000})});
    REQUIRE(metadata.page_faults.size() == 2);
    CHECK(metadata.page_faults[0].time == 1200);
    CHECK(metadata.page_faults[1].time == 7000);
}

TEST_CASE("the clocks of a trace whose recorder was killed go on to its last event") {
    const TraceMetadata metadata = metadata_of(
        {process_chunk(2000, 5'000'500), fault_chunk({5'000'100, 5'003'000}), event_chunk(11'000)});
    CHECK(metadata.process.end_ticks == 11'000);
    CHECK(metadata.process.end_ns == 5'005'000);
    REQUIRE(metadata.page_faults.size() == 2);
    CHECK(metadata.page_faults[1].time == 7000);
}
