// Tests of the store under faults: killed processes, files that others change, a full file table,
// damaged stores, and power failures of persistent memory.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "power_model.hpp"
#include "storage/store/drain.hpp"
#include "storage/store/durability.hpp"
#include "storage/store/file_handles.hpp"
#include "storage/store/recover.hpp"
#include "store_fixture.hpp"

namespace {

// In its scope stores count as persistent memory.
struct PersistentMemory {
    PersistentMemory() { model_persistent_memory(true); }
    ~PersistentMemory() { model_persistent_memory(false); }
};

FileStatus status_of(const std::string& path) {
    FileStatus status;
    REQUIRE(read_status(path.c_str(), status) == 0);
    return status;
}

FileStatus status_of_invented_file(std::uint64_t inode) {
    FileStatus status;
    status.device = 1, status.inode = inode, status.regular = true;
    return status;
}

// Assigns all free slots to files that stay open.
void fill_table(const Store& store) {
    for (std::uint64_t k = 0; k < file_slots && !store.file(file_slots - 1).generation; ++k)
        acquire_slot(store, status_of_invented_file(1000 + k), "/nowhere");
    REQUIRE(store.file(file_slots - 1).users == 1);
}

// Whether recovery ends by itself within 120 s. It runs in a child process.
bool recovery_ends(Store& store) {
    const pid_t child = fork();
    if (!child) {
        alarm(120);
        recover(store, {1});
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status);
}

}  // namespace

TEST_CASE("a file has its error until a repeated write has succeeded") {
    Folder folder;
    auto store = create_store(folder.path, 1);
    const auto slot = slot_of_file(*store, folder.file("out"));
    Writer writer(*store, 0);
    const FileHandles handles(*store);
    Drain drain(*store, handles, 1);
    const std::vector<char> data(8u << 20);
    write_block(*store, writer, slot, 0, data.data(), data.size());
    write_block(*store, writer, slot, ~0ull / 2 - 1, "abc", 3);  // no file can have that offset
    drain.finish(0, store->head(0).tail);
    REQUIRE(store->file(slot).error == EINVAL);
    // The error must be set at every moment, since the process may be killed at any.
    std::atomic<bool> stops = false, was_cleared = false;
    std::thread watcher([&] {
        while (!stops) {
            if (!store->file(slot).error.load()) was_cleared = true;
        }
    });
    for (int attempt = 0; attempt < 20; ++attempt) CHECK(drain.retry(slot) == EINVAL);
    stops = true;
    watcher.join();
    CHECK(!was_cleared);
    store->remove();
}

TEST_CASE("data that are not in a file yet stay valid when another program changes the file") {
    Folder folder;
    auto store = create_store(folder.path, 1);
    const auto path = folder.file("out"), elsewhere = (folder.path / "elsewhere").string();
    const auto slot = slot_of_file(*store, path);
    Writer writer(*store, 0);
    const FileHandles handles(*store);
    Drain drain(*store, handles, 1);
    write_block(*store, writer, slot, 0, "abc", 3);
    SUBCASE("not drained") {}
    SUBCASE("a failed write") {
        fs::rename(path, elsewhere);
        drain.finish(0, store->head(0).tail);
        fs::rename(elsewhere, path);
        REQUIRE(store->file(slot).error == ESTALE);
    }
    const FileStatus closed = status_of(path);
    release_slot(*store, slot, &closed);  // the close of a handle that has not written
    std::ofstream(path) << "....by another program";
    REQUIRE(acquire_slot(*store, status_of(path), path) == slot);
    drain.finish(0, store->head(0).tail);
    CHECK(drain.retry(slot) == 0);
    CHECK(read_contents(path).substr(0, 5) == "abc.b");
    store->remove();
}

TEST_CASE("a slot whose file a rank holds open is not assigned to another file") {
    Folder folder;
    auto store = create_store(folder.path, 1);
    const auto path = folder.file("out");
    const FileStatus status = status_of(path);
    const auto slot = slot_of_file(*store, path);
    FileHandles handles(*store, 0);
    const auto descriptor = std::make_shared<const Descriptor>(open(path.c_str(), O_RDWR));
    handles.hold(slot, descriptor);
    release_slot(*store, slot, &status);
    fill_table(*store);
    CHECK(acquire_slot(*store, status_of_invented_file(1), "/nowhere") == file_slots);
    handles.release(slot, descriptor);
    CHECK(acquire_slot(*store, status_of_invented_file(1), "/nowhere") == slot);
    store->remove();
}

TEST_CASE("the slot of a deleted file is assigned again, although its data were not synced") {
    Folder folder;
    auto store = create_store(folder.path, 1);
    const auto path = folder.file("out");
    const FileStatus status = status_of(path);
    const auto slot = slot_of_file(*store, path);
    note_draining(store->file(slot), store->now());
    release_slot(*store, slot, nullptr);
    drop_deleted_file(*store, status);
    fill_table(*store);
    CHECK(acquire_slot(*store, status_of_invented_file(1), "/nowhere") == slot);
    store->remove();
}

TEST_CASE("opening a file again keeps the modification time that the drain has stored") {
    Folder folder;
    auto store = create_store(folder.path, 1);
    const auto path = folder.file("out");
    const FileStatus before = status_of(path);
    const auto slot = slot_of_file(*store, path);
    release_slot(*store, slot, nullptr);  // not drained yet
    const int fd = open(path.c_str(), O_WRONLY);
    usleep(20'000);
    CHECK(write(fd, "abc", 3) == 3);
    note_modified(*store, slot, fd);
    close(fd);
    acquire_slot(*store, before, path);  // with a status from before the drain's write
    CHECK(store->file(slot).known_mtime_ns == status_of(path).mtime_ns);
    store->remove();
}

TEST_CASE("recovery of persistent memory does not write older data over newer ones") {
    Folder folder;
    const PersistentMemory memory;
    auto store = create_store(folder.path, 2);
    REQUIRE(store->persistent());
    const auto path = folder.file("out");
    const auto slot = slot_of_file(*store, path);
    Writer first(*store, 0), second(*store, 1);
    const FileHandles handles(*store);
    Drain drain(*store, handles, 1);
    write_block(*store, second, slot, 0, "older", 5);
    write_block(*store, first, slot, 0, "newer", 5);
    drain.finish(0, store->head(0).tail);
    drain.sync_all();
    store->head(0).first_record = 1;  // the newer data were evicted from the ring
    CHECK(recover(*store, {1}).kept.empty());
    CHECK(read_contents(path) == "newer");
    store->remove();
}

TEST_CASE("recovery of persistent memory does not undo a truncation") {
    Folder folder;
    const PersistentMemory memory;
    auto store = create_store(folder.path, 1);
    const auto path = folder.file("out");
    const auto slot = slot_of_file(*store, path);
    Writer writer(*store, 0);
    const FileHandles handles(*store);
    Drain drain(*store, handles, 1);
    write_block(*store, writer, slot, 0, "0123456789", 10);
    drain.finish(0, store->head(0).tail);
    REQUIRE(truncate(path.c_str(), 4) == 0);
    Record record{};
    record.file = slot, record.generation = store->file(slot).generation;
    record.kind = static_cast<std::uint64_t>(RecordKind::truncate);
    record.begin = 4;
    writer.publish(&record, 1);
    CHECK(recover(*store, {1, true}).kept.empty());
    CHECK(read_contents(path) == "0123");
    store->remove();
}

TEST_CASE("on persistent memory a repeated write may be evicted after its fsync") {
    Folder folder;
    const PersistentMemory memory;
    auto store = create_store(folder.path, 1);
    const auto path = folder.file("out");
    const auto slot = slot_of_file(*store, path);
    Writer writer(*store, 0);
    const FileHandles handles(*store);
    Drain drain(*store, handles, 1);
    fs::rename(path, folder.path / "elsewhere");
    write_block(*store, writer, slot, 0, "abc", 3);
    drain.finish(0, store->head(0).tail);
    REQUIRE(store->file(slot).error == ESTALE);
    fs::rename(folder.path / "elsewhere", path);
    CHECK(drain.retry(slot) == 0);
    CHECK(!may_evict(*store, store->record(0, 0)));
    drain.sync_all();
    CHECK(may_evict(*store, store->record(0, 0)));
    store->remove();
}

TEST_CASE("recovery of a damaged store ends") {
    Folder folder;
    bool persistent = false;
    SUBCASE("volatile") {}
    SUBCASE("persistent") { persistent = true; }
    model_persistent_memory(persistent);
    auto store = create_store(folder.path, 1);
    model_persistent_memory(false);
    const auto slot = slot_of_file(*store, folder.file("out"));
    Writer writer(*store, 0);
    write_block(*store, writer, slot, 0, "abc", 3);
    store->head(0).tail = store->head(0).drained = 1ull << 62;
    store->file(slot).error = EIO;
    CHECK(recovery_ends(*store));
    store->remove();
}

TEST_CASE("recovery ends where a file's positions are ahead of the clock") {
    constexpr std::uint64_t hour = 3'600'000'000'000;
    Folder folder;
    auto store = create_store(folder.path, 1);
    const auto path = folder.file("out");
    const auto slot = slot_of_file(*store, path);
    Writer writer(*store, 0);
    write_block(*store, writer, slot, 0, "abc", 3);
    auto& file = store->file(slot);
    SUBCASE("the host has restarted, and its clock") { file.drained_before = store->now() + hour; }
    SUBCASE("from no clock") { file.drained_before = file.durable = ~0ull; }
    CHECK(recovery_ends(*store));
    CHECK(read_contents(path) == "abc");
    CHECK(!needs_sync(file));
    store->remove();
}

TEST_CASE("recovery leaves out records with impossible fields") {
    Folder folder;
    auto store = create_store(folder.path, 1);
    const auto path = folder.file("out");
    const auto slot = slot_of_file(*store, path);
    Writer writer(*store, 0);
    write_block(*store, writer, slot, 0, "abc", 3);
    write_block(*store, writer, slot, 3, "def", 3);
    Record& record = store->record(0, 0);
    SUBCASE("very many empty blocks") { record.length = 0, record.count = 1ull << 54; }
    SUBCASE("a sequence beyond all clocks") { record.sequence = ~0ull; }
    SUBCASE("a truncation with a sequence beyond all clocks") {
        record.kind = static_cast<std::uint64_t>(RecordKind::truncate);
        record.sequence = ~0ull;
    }
    record.checksum = checksum_of(*store, 0, record);
    REQUIRE(recovery_ends(*store));
    CHECK(store->superblock().torn == 1);
    CHECK(read_contents(path) == std::string(3, '\0') + "def");
    store->remove();
}

TEST_CASE("a failed write of settled bytes does not make the drain write older data again") {
    Folder folder;
    auto store = create_store(folder.path, 1);
    const auto path = folder.file("out");
    const auto slot = slot_of_file(*store, path);
    Writer writer(*store, 0);
    write_block(*store, writer, slot, 0, "old", 3);
    write_block(*store, writer, slot, 3, "abc", 3);
    const FileHandles handles(*store);
    Drain drain(*store, handles, 1);
    drain.finish(0, 2);
    store->file(slot).settled = store->file(slot).durable = store->record(0, 1).sequence;
    std::ofstream(path, std::ios::binary)
        << "newold";  // newer bytes of another node, then a lost write
    note_error(*store, store->file(slot), EIO);
    CHECK(drain.retry(slot) == 0);
    CHECK(read_contents(path) == "newabc");
    store->remove();
}
