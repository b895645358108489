#include "profile/numa/record/kernel_records.hpp"

#include <doctest/doctest.h>

#include "planted_ring.hpp"

using namespace assay::numa;
using Kind = KernelEvent::Kind;

namespace {

const AccessEvents planted_events = {{load_event_id, Operation::load},
                                     {ibs_event_id, Operation::none}};

struct Read {
    std::vector<KernelEvent> events;
    Losses losses;
};

Read read(const PlantedRing& ring) {
    Read read;
    read_records(
        {ring.data.data(), ring.data.size()}, ring.tail, ring.head, planted_events,
        [&](KernelEvent&& event) { read.events.push_back(std::move(event)); }, read.losses);
    return read;
}

}  // namespace

TEST_CASE("every record of a ring is read, also across its end") {
    const Read result = read(planted_ring());
    REQUIRE(result.events.size() == 7);
    const KernelEvent &mapped = result.events[0], &fault = result.events[2],
                      &load = result.events[3], &store = result.events[4];
    CHECK(mapped.kind == Kind::map);
    CHECK(mapped.name == "/bin/a");
    CHECK(mapped.executable);
    CHECK(mapped.offset == 0x2000);
    CHECK(result.events[1].kind == Kind::start);
    CHECK(result.events[1].pid == 200);
    CHECK(result.events[1].parent == 100);
    CHECK(fault.kind == Kind::fault);
    CHECK(fault.address == 0x10000);
    CHECK(fault.processor == 3);
    CHECK(fault.ip == 0x4004);  // of the program, also where the kernel faulted
    CHECK(fault.used_words == 2);
    CHECK(fault.stack[1] == 2);
    CHECK(load.kind == Kind::access);
    CHECK(load.ip == 0x4000);
    CHECK(load.used_words == 0);
    CHECK(load.source.operation == Operation::load);
    CHECK(load.source.level == MemoryLevel::remote_memory);
    CHECK(store.kind == Kind::access);
    CHECK(store.address == 0x30000);
    CHECK(store.source.operation == Operation::store);
    CHECK(store.source.level == MemoryLevel::local_cache);
    CHECK(result.events[5].kind == Kind::exec);
    CHECK(result.events[6].kind == Kind::exit);
    for (std::size_t k = 1; k < result.events.size(); ++k)
        CHECK(result.events[k - 1].ns < result.events[k].ns);
    CHECK(result.losses.lost == 12);
    CHECK(result.losses.throttled == 1);
}

TEST_CASE("a stack is kept up to its limit") {
    PlantedRing ring(4096);
    ring.add(PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER,
             planted_sample(load_event_id, 1, 9, 100)
                 .put(planted_source(PERF_MEM_OP_LOAD, PERF_MEM_LVL_LOC_RAM | PERF_MEM_LVL_HIT))
                 .bytes);
    const Read result = read(ring);
    REQUIRE(result.events.size() == 1);
    CHECK(result.events[0].used_words == stack_words);
    CHECK(result.events[0].source.level == MemoryLevel::local_memory);
}

TEST_CASE("a record that is too short is lost, and those behind it are read") {
    PlantedRing ring(4096);
    ring.add(PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER,
             planted_sample(load_event_id, 1, 9).bytes);  // without its data source
    ring.add(PERF_RECORD_EXIT, 0, {});
    ring.add(PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER, planted_sample(fault_event_id, 2, 9).bytes);
    const Read result = read(ring);
    REQUIRE(result.events.size() == 1);
    CHECK(result.events[0].ns == 2);
    CHECK(result.losses.lost == 2);
}

TEST_CASE("what follows an impossible record is lost") {
    for (const std::uint16_t size : {std::uint16_t{0}, std::uint16_t{7}, std::uint16_t{0xffff}}) {
        PlantedRing ring(4096);
        ring.add(PERF_RECORD_EXIT, 0, {});
        std::memcpy(&ring.data[offsetof(perf_event_header, size)], &size, sizeof size);
        ring.add(PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER,
                 planted_sample(fault_event_id, 2, 9).bytes);
        const Read result = read(ring);
        CHECK(result.events.empty());
        CHECK(result.losses.lost == 1);
    }
}

TEST_CASE("more bytes than the ring holds are not read") {
    PlantedRing ring = planted_ring();
    ring.head = ring.tail + ring.data.size() + 1;
    CHECK(read(ring).events.empty());
    CHECK(read(ring).losses.lost == 1);
}
