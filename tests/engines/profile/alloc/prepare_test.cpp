// Scripts: what a trace holds is what will be replayed, call for call, whether its blocks have
// addresses or names.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <vector>

#include "core/error.hpp"
#include "profile/alloc/prepare.hpp"

using namespace assay;
using namespace assay::alloc;
using heap::Event;
using heap::Kind;

namespace {

struct Folder {
    std::string path = "/tmp/assay-alloc-XXXXXX";
    Folder() { REQUIRE(mkdtemp(path.data()) != nullptr); }
    ~Folder() { [[maybe_unused]] const int status = std::system(("rm -rf " + path).c_str()); }
    std::string operator/(const std::string& name) const { return path + "/" + name; }
};

Event event(Kind kind, std::uint64_t step, std::uint64_t address, std::uint64_t size = 0) {
    return {step << heap::time_shift,
            address | (static_cast<std::uint64_t>(kind) << heap::kind_shift), size, 0, 0};
}

void write_events(heap::TraceWriter& writer, std::uint32_t thread,
                  const std::vector<Event>& events) {
    heap::Bytes payload;
    heap::encode_columns(events, thread, events.front().time, payload);
    writer.write({.kind = heap::ChunkKind::events,
                  .thread = thread,
                  .count = static_cast<std::uint32_t>(events.size()),
                  .first = events.front().time,
                  .last = events.back().time},
                 payload);
}

// Thread 0 asks for two blocks, hands the second to thread 1, and lets the first grow; thread 1
// frees the second, asks for one of its own, and frees one that nobody asked for. `a` to `d` stand
// for the blocks.
void write_trace(const std::string& path, std::uint64_t a, std::uint64_t b, std::uint64_t c,
                 std::uint64_t d) {
    heap::TraceWriter writer(path);
    write_events(writer, 0,
                 {event(Kind::malloc, 10, a, 100), event(Kind::calloc, 20, b, 1000),
                  event(Kind::realloc_from, 30, a), event(Kind::realloc, 40, c, 300)});
    write_events(writer, 1,
                 {event(Kind::free, 50, b), event(Kind::malloc, 60, d, 50),
                  event(Kind::free, 70, d), event(Kind::free, 80, 0x9999)});
}

struct Script {
    Head head;
    std::vector<std::vector<Operation>> lanes;
};

Script load(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    Script script;
    file.read(reinterpret_cast<char*>(&script.head), sizeof script.head);
    std::vector<Lane> lanes(script.head.lanes);
    file.read(reinterpret_cast<char*>(lanes.data()),
              static_cast<std::streamsize>(lanes.size() * sizeof(Lane)));
    for (const Lane& lane : lanes) {
        script.lanes.emplace_back(lane.count);
        file.read(reinterpret_cast<char*>(script.lanes.back().data()),
                  static_cast<std::streamsize>(lane.count * sizeof(Operation)));
    }
    REQUIRE(file);
    return script;
}

// Without the ends of epochs.
std::vector<Operation> calls(const std::vector<Operation>& lane) {
    std::vector<Operation> found;
    for (const Operation& one : lane)
        if (static_cast<Do>(one.what) != Do::epoch) found.push_back(one);
    return found;
}

void check_script(const Script& script) {
    const Head& head = script.head;
    CHECK(head.lanes == 2);
    CHECK(head.mallocs == 3);
    CHECK(head.reallocs == 1);
    CHECK(head.frees == 2);
    CHECK(head.unknown == 1);
    CHECK(head.handed_over == 1);
    CHECK(head.shared_slots == 1);
    CHECK(head.peak_live == 1300);
    CHECK(head.left_live == 300);
    const auto first = calls(script.lanes[0]), second = calls(script.lanes[1]);
    REQUIRE(first.size() == 3);
    CHECK(static_cast<Do>(first[0].what) == Do::malloc);
    CHECK(first[0].size == 100);
    CHECK(static_cast<Do>(first[1].what) == Do::calloc);
    CHECK((first[1].to & shared_slot) != 0);
    CHECK(static_cast<Do>(first[2].what) == Do::realloc);
    CHECK(first[2].from == first[0].to);
    CHECK(first[2].size == 300);
    REQUIRE(second.size() == 3);
    CHECK(static_cast<Do>(second[0].what) == Do::free);
    CHECK(second[0].from == first[1].to);
    CHECK(second[2].from == second[1].to);
}

}  // namespace

TEST_CASE("a script makes the calls of a trace whose blocks have addresses") {
    const Folder folder;
    write_trace(folder / "trace", 0x1000, 0x2000, 0x3000, 0x1000);
    prepare(folder / "trace", folder / "script");
    check_script(load(folder / "script"));
}

TEST_CASE("and of a packed one, whose blocks have names") {
    const Folder folder;
    write_trace(folder / "trace", heap::block_id(0, 0), heap::block_id(0, 1), heap::block_id(0, 2),
                heap::block_id(1, 0));
    prepare(folder / "trace", folder / "script");
    check_script(load(folder / "script"));
}

TEST_CASE("the last epoch that a thread takes part in is that of its last call") {
    const Folder folder;
    write_trace(folder / "trace", 0x1000, 0x2000, 0x3000, 0x1000);
    prepare(folder / "trace", folder / "script");
    for (const auto& lane : load(folder / "script").lanes)
        CHECK(static_cast<Do>(lane.back().what) == Do::epoch);
}

TEST_CASE("a reallocation that failed leaves the block, one to nothing frees it") {
    const Folder folder;
    {
        heap::TraceWriter writer(folder / "trace");
        write_events(writer, 0,
                     {event(Kind::malloc, 10, 0x1000, 100), event(Kind::realloc_from, 20, 0x1000),
                      event(Kind::realloc, 30, 0x1000, heap::not_reallocated),
                      event(Kind::realloc_from, 40, 0x1000), event(Kind::realloc, 50, 0, 0)});
    }
    const Head head = prepare(folder / "trace", folder / "script");
    CHECK(head.mallocs == 1);
    CHECK(head.reallocs == 0);
    CHECK(head.frees == 1);
    CHECK(head.left_live == 0);
}

TEST_CASE("slots are used again") {
    const Folder folder;
    {
        heap::TraceWriter writer(folder / "trace");
        std::vector<Event> events;
        for (std::uint64_t k = 0; k < 1000; ++k) {
            events.push_back(event(Kind::malloc, 2 * k, 0x1000, 64));
            events.push_back(event(Kind::free, 2 * k + 1, 0x1000));
        }
        write_events(writer, 0, events);
    }
    prepare(folder / "trace", folder / "script");
    for (const Operation& one : calls(load(folder / "script").lanes[0]))
        CHECK((static_cast<Do>(one.what) == Do::free ? one.from : one.to) == 0);
}

TEST_CASE("a trace that is not whole is refused") {
    const Folder folder;
    write_trace(folder / "trace", 0x1000, 0x2000, 0x3000, 0x1000);
    std::ifstream whole(folder / "trace", std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(whole)), {});
    std::ofstream(folder / "short", std::ios::binary) << bytes.substr(0, bytes.size() - 5);
    std::ofstream(folder / "none", std::ios::binary) << "no trace at all";
    std::ofstream(folder / "empty", std::ios::binary) << "";
    for (const char* name : {"short", "none", "empty", "missing"})
        CHECK_THROWS_AS(prepare(folder / name, folder / "script"), Error);
}
