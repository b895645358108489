// A script has exactly the calls of its trace, for traces with addresses and for packed ones.
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

// Thread 0 allocates two blocks and reallocates the first; thread 1 frees the second, allocates and
// frees a block, and frees an unknown block. `a` to `d` are the blocks' addresses.
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
    ScriptHeader header;
    std::vector<std::vector<Operation>> threads;
};

Script load(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    Script script;
    file.read(reinterpret_cast<char*>(&script.header), sizeof script.header);
    std::vector<ThreadTrace> threads(script.header.threads);
    file.read(reinterpret_cast<char*>(threads.data()),
              static_cast<std::streamsize>(threads.size() * sizeof(ThreadTrace)));
    for (const ThreadTrace& thread : threads) {
        script.threads.emplace_back(thread.count);
        file.read(reinterpret_cast<char*>(script.threads.back().data()),
                  static_cast<std::streamsize>(thread.count * sizeof(Operation)));
    }
    REQUIRE(file);
    return script;
}

// The operations without the ends of epochs.
std::vector<Operation> calls(const std::vector<Operation>& thread) {
    std::vector<Operation> calls_only;
    for (const Operation& operation : thread)
        if (static_cast<OperationKind>(operation.kind) != OperationKind::end_epoch)
            calls_only.push_back(operation);
    return calls_only;
}

void check_script(const Script& script) {
    const ScriptHeader& header = script.header;
    CHECK(header.threads == 2);
    CHECK(header.mallocs == 3);
    CHECK(header.reallocs == 1);
    CHECK(header.frees == 2);
    CHECK(header.unknown_frees == 1);
    CHECK(header.handed_over == 1);
    CHECK(header.shared_slots == 1);
    CHECK(header.peak_live == 1300);
    CHECK(header.leaked == 300);
    const auto first = calls(script.threads[0]), second = calls(script.threads[1]);
    REQUIRE(first.size() == 3);
    CHECK(static_cast<OperationKind>(first[0].kind) == OperationKind::malloc);
    CHECK(first[0].size == 100);
    CHECK(static_cast<OperationKind>(first[1].kind) == OperationKind::calloc);
    CHECK((first[1].filled_slot & shared_slot) != 0);
    CHECK(static_cast<OperationKind>(first[2].kind) == OperationKind::realloc);
    CHECK(first[2].freed_slot == first[0].filled_slot);
    CHECK(first[2].size == 300);
    REQUIRE(second.size() == 3);
    CHECK(static_cast<OperationKind>(second[0].kind) == OperationKind::free);
    CHECK(second[0].freed_slot == first[1].filled_slot);
    CHECK(second[2].freed_slot == second[1].filled_slot);
}

}  // namespace

TEST_CASE("a script makes the calls of a trace whose blocks have addresses") {
    const Folder folder;
    write_trace(folder / "trace", 0x1000, 0x2000, 0x3000, 0x1000);
    prepare(folder / "trace", folder / "script");
    check_script(load(folder / "script"));
}

TEST_CASE("a script makes the calls of a packed trace") {
    const Folder folder;
    write_trace(folder / "trace", heap::block_id(0, 0), heap::block_id(0, 1), heap::block_id(0, 2),
                heap::block_id(1, 0));
    prepare(folder / "trace", folder / "script");
    check_script(load(folder / "script"));
}

TEST_CASE("the last operation of a thread ends the epoch of its last call") {
    const Folder folder;
    write_trace(folder / "trace", 0x1000, 0x2000, 0x3000, 0x1000);
    prepare(folder / "trace", folder / "script");
    for (const auto& thread : load(folder / "script").threads)
        CHECK(static_cast<OperationKind>(thread.back().kind) == OperationKind::end_epoch);
}

TEST_CASE("a failed reallocation keeps the block, realloc to size 0 frees it") {
    const Folder folder;
    {
        heap::TraceWriter writer(folder / "trace");
        write_events(writer, 0,
                     {event(Kind::malloc, 10, 0x1000, 100), event(Kind::realloc_from, 20, 0x1000),
                      event(Kind::realloc, 30, 0x1000, heap::not_reallocated),
                      event(Kind::realloc_from, 40, 0x1000), event(Kind::realloc, 50, 0, 0)});
    }
    const ScriptHeader header = prepare(folder / "trace", folder / "script");
    CHECK(header.mallocs == 1);
    CHECK(header.reallocs == 0);
    CHECK(header.frees == 1);
    CHECK(header.leaked == 0);
}

TEST_CASE("slots are reused") {
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
    for (const Operation& operation : calls(load(folder / "script").threads[0]))
        CHECK((static_cast<OperationKind>(operation.kind) == OperationKind::free
                   ? operation.freed_slot
                   : operation.filled_slot) == 0);
}

TEST_CASE("an incomplete trace is refused") {
    const Folder folder;
    write_trace(folder / "trace", 0x1000, 0x2000, 0x3000, 0x1000);
    std::ifstream input(folder / "trace", std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(input)), {});
    std::ofstream(folder / "short", std::ios::binary) << bytes.substr(0, bytes.size() - 5);
    std::ofstream(folder / "none", std::ios::binary) << "no trace at all";
    std::ofstream(folder / "empty", std::ios::binary) << "";
    for (const char* name : {"short", "none", "empty", "missing"})
        CHECK_THROWS_AS(prepare(folder / name, folder / "script"), Error);
}
