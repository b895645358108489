// Tests of superseded records: bytes that another node has written later are left out when this
// node drains its data, writes them again after a failure, or recovers them.
#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <thread>

#include "power_model.hpp"
#include "storage/store/drain.hpp"
#include "storage/store/durability.hpp"
#include "storage/store/file_handles.hpp"
#include "storage/store/recover.hpp"
#include "store_fixture.hpp"

namespace {

// A node of a job. Two of them share a file.
struct Node {
    Node(const Folder& folder, const std::string& path, const char* name)
        : store(create_store(folder.path, 2, name)),
          slot(slot_of_file(*store, path)),
          first(*store, 0),
          second(*store, 1),
          handles(*store),
          drain(*store, handles, 1) {
        store->file(slot).shared = 1;
    }
    // Writes text and returns the sequence of its record.
    std::uint64_t write(Writer& writer, std::uint64_t offset, const std::string& text) {
        REQUIRE(write_block(*store, writer, slot, offset, text.data(), text.size()));
        return store->record(writer.rank(), store->head(writer.rank()).tail - 1).sequence;
    }
    // Publishes that another node has written `count` blocks at that sequence.
    void supersede(Writer& writer, std::uint64_t sequence, std::uint64_t begin,
                   std::uint64_t length, std::uint64_t stride = 1, std::uint64_t count = 1) {
        store->file(slot).superseded = 1;
        Record record{};
        record.file = slot, record.generation = store->file(slot).generation;
        record.kind = static_cast<std::uint64_t>(RecordKind::superseded);
        record.sequence = sequence;
        record.begin = begin, record.length = length, record.stride = stride, record.count = count;
        store->advance_clock(sequence + 1);
        writer.publish(&record, 1);
    }
    void drain_all() {
        for (std::uint32_t rank = 0; rank < 2; ++rank) drain.finish(rank, store->head(rank).tail);
    }
    // As after an fsync that has failed: all data count as not written.
    void fail() { note_error(*store, store->file(slot), EIO); }
    int retry() { return drain.retry(slot); }

    std::unique_ptr<Store> store;
    std::uint32_t slot;
    Writer first, second;
    FileHandles handles;
    Drain drain;
};

struct PersistentMemory {
    explicit PersistentMemory(bool on) { model_persistent_memory(on); }
    ~PersistentMemory() { model_persistent_memory(false); }
};

}  // namespace

TEST_CASE("after a failed fsync two nodes write again in any order, and the newest bytes stay") {
    Folder folder;
    const auto path = folder.file("out");
    Node a(folder, path, "a"), b(folder, path, "b");
    a.write(a.first, 0, "aaaaaaaa");
    a.drain_all();
    b.store->advance_clock(a.store->now() + 1);
    const std::uint64_t newer = b.write(b.first, 2, "bbb");
    b.drain_all();
    a.fail();
    b.fail();
    a.supersede(a.first, newer, 2, 3);
    SUBCASE("the older node first") {
        CHECK(a.retry() == 0);
        CHECK(b.retry() == 0);
    }
    SUBCASE("the older node last") {
        CHECK(b.retry() == 0);
        CHECK(a.retry() == 0);
    }
    SUBCASE("the older node again and again") {
        CHECK(b.retry() == 0);
        for (int k = 0; k < 3; ++k) {
            a.fail();
            CHECK(a.retry() == 0);
        }
    }
    SUBCASE("recovery of the newer node first") {
        CHECK(recover(*b.store, {1}).kept.empty());
        CHECK(recover(*a.store, {1}).kept.empty());
    }
    SUBCASE("recovery of the older node first") {
        CHECK(recover(*a.store, {1}).kept.empty());
        CHECK(recover(*b.store, {1}).kept.empty());
    }
    CHECK(read_contents(path) == "aabbbaaa");
    a.store->remove(), b.store->remove();
}

TEST_CASE("of three nodes each leaves out what is older than the newest bytes") {
    Folder folder;
    const auto path = folder.file("out");
    Node a(folder, path, "a"), b(folder, path, "b"), c(folder, path, "c");
    a.write(a.first, 0, "aaaaaaaa");
    b.store->advance_clock(a.store->now() + 1);
    const std::uint64_t of_b = b.write(b.first, 0, "bbbb");
    c.store->advance_clock(b.store->now() + 1);
    const std::uint64_t of_c = c.write(c.first, 2, "cccc");
    a.supersede(a.first, of_b, 0, 4);
    a.supersede(a.first, of_c, 2, 4);
    b.supersede(b.first, of_c, 2, 2);
    for (Node* node : {&c, &b, &a}) node->drain_all();
    CHECK(read_contents(path) == "bbccccaa");
    for (Node* node : {&a, &b, &c}) node->fail();
    for (Node* node : {&c, &a, &b}) CHECK(node->retry() == 0);
    CHECK(read_contents(path) == "bbccccaa");
    for (Node* node : {&a, &b, &c}) node->store->remove();
}

TEST_CASE("the drain leaves superseded bytes out of data that it has not written yet") {
    Folder folder;
    const auto path = folder.file("out");
    Node a(folder, path, "a");
    const std::string old(64, 'a');
    a.write(a.first, 0, old);
    a.supersede(a.first, a.store->now(), 8, 4, 16, 3);  // 8 to 12, 24 to 28, 40 to 44
    std::string expected(64, 'b');
    std::ofstream(path, std::ios::binary) << expected;
    a.drain_all();
    for (std::size_t k = 0; k < 64; ++k)
        if (k % 16 < 8 || k % 16 >= 12 || k >= 48) expected[k] = 'a';
    CHECK(read_contents(path) == expected);
    a.store->remove();
}

TEST_CASE("later data of the same node are written over superseded bytes") {
    Folder folder;
    const auto path = folder.file("out");
    Node a(folder, path, "a");
    a.write(a.first, 0, "aaaa");
    a.supersede(a.first, a.store->now(), 0, 4);
    a.write(a.second, 1, "AA");
    std::ofstream(path, std::ios::binary) << "bbbb";
    a.drain_all();
    CHECK(read_contents(path) == "bAAb");
    std::ofstream(path, std::ios::binary) << "bbbb";
    a.fail();
    CHECK(a.retry() == 0);
    CHECK(read_contents(path) == "bAAb");
    a.store->remove();
}

TEST_CASE("a file whose failed data are all superseded is complete") {
    Folder folder;
    const auto path = folder.file("out");
    Node a(folder, path, "a");
    a.write(a.first, 0, "aaaa");
    a.drain_all();
    a.fail();
    a.supersede(a.first, a.store->now(), 0, 4);
    std::ofstream(path, std::ios::binary) << "bbbb";
    CHECK(a.retry() == 0);
    CHECK(a.store->file(a.slot).error == 0);
    CHECK(read_contents(path) == "bbbb");
    a.store->remove();
}

TEST_CASE("writes that began before the record was published have ended when the wait returns") {
    Folder folder;
    Node a(folder, folder.file("out"), "a");
    a.write(a.first, 0, "aaaa");
    auto& lock = a.store->superblock().drain_lock;
    lock = static_cast<std::uint32_t>(getppid());  // another process of the node drains
    std::atomic<bool> waits = false, has_ended = false, was_early = false;
    std::thread waiter([&] {
        waits = true;
        a.drain.wait_for_running_writes();
        was_early = !has_ended.load();
    });
    while (!waits) std::this_thread::yield();
    for (int k = 0; k < 1000; ++k) CHECK(a.drain.step(1) == Drain::Step::busy);
    has_ended = true;
    lock = 0;
    waiter.join();
    CHECK(!was_early);
    a.store->remove();
}

TEST_CASE("a superseded record is evicted after the data that it covers") {
    Folder folder;
    const auto path = folder.file("out");
    Node a(folder, path, "a");
    a.write(a.first, 0, "aaaa");
    a.supersede(a.first, a.store->now(), 0, 4);
    a.drain_all();
    CHECK(a.store->head(0).drained == 2);
    a.first.release_drained();
    CHECK(a.store->head(0).first_record == 0);
    a.drain.sync_all();
    a.first.release_drained();
    CHECK(a.store->head(0).first_record == 2);
    std::ofstream(path, std::ios::binary) << "bbbb";
    a.fail();
    CHECK(a.retry() == 0);
    CHECK(read_contents(path) == "bbbb");
    a.store->remove();
}

TEST_CASE("a slot that another file gets has no superseded bytes") {
    Folder folder;
    const auto path = folder.file("out");
    Node a(folder, path, "a");
    a.write(a.first, 0, "aaaa");
    a.supersede(a.first, a.store->now(), 0, 4);
    a.store->file(a.slot).generation.fetch_add(1);
    a.store->file(a.slot).superseded = 1;
    a.write(a.second, 0, "cccc");
    a.drain_all();
    CHECK(read_contents(path) == "cccc");
    a.store->remove();
}

TEST_CASE("recovery leaves superseded bytes out") {
    Folder folder;
    bool persistent = false;
    SUBCASE("volatile") {}
    SUBCASE("persistent") { persistent = true; }
    const PersistentMemory memory(persistent);
    const auto path = folder.file("out");
    Node a(folder, path, "a");
    REQUIRE(a.store->persistent() == persistent);
    a.write(a.first, 0, "aaaaaa");
    a.supersede(a.first, a.store->now(), 2, 2);
    std::ofstream(path, std::ios::binary) << "bbbbbb";
    SUBCASE("before the drain") {}
    SUBCASE("after the drain and a failure") {
        a.drain_all();
        a.fail();
    }
    SUBCASE("after a drain that was killed") {
        a.store->head(0).drained = 1;
        a.fail();
    }
    CHECK(recover(*a.store, {1, true}).kept.empty());
    CHECK(read_contents(path) == "aabbaa");
    a.store->remove();
}

TEST_CASE("recovery reports damaged superseded records and does not leave data out for them") {
    Folder folder;
    const auto path = folder.file("out");
    Node a(folder, path, "a");
    a.write(a.first, 0, "aaaa");
    a.supersede(a.first, a.store->now(), 0, 2);
    Record& record = a.store->record(0, 1);
    SUBCASE("torn") { record.length = 4; }
    SUBCASE("more bytes than the ring has") {
        record.length = 1ull << 40;
        record.checksum = checksum_of(*a.store, 0, record);
    }
    SUBCASE("very many empty blocks") {
        record.length = 0, record.count = 1ull << 54;
        record.checksum = checksum_of(*a.store, 0, record);
    }
    SUBCASE("a slot that does not exist") {
        record.file = file_slots;
        record.checksum = checksum_of(*a.store, 0, record);
    }
    CHECK(recover(*a.store, {1}).torn == 1);
    CHECK(read_contents(path) == "aaaa");
    a.store->remove();
}
