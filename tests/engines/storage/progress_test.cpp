// Tests of a node's progress: the end of a file that others may have made shorter.
#include "storage/store/progress.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "storage/store/drain.hpp"
#include "storage/store/durability.hpp"
#include "storage/store/file_handles.hpp"
#include "store_fixture.hpp"

TEST_CASE("the known end of a file is lowered to that of the data that the file may lack") {
    const Folder folder;
    const auto store = create_store(folder.path, 1);
    const auto slot = slot_of_file(*store, folder.file("f"));
    auto& file = store->file(slot);
    Writer writer(*store, 0);
    REQUIRE(write_block(*store, writer, slot, 0, "abcdef", 6));
    extend_end(file, 6);
    const auto drain = [&] { store->head(0).drained = store->head(0).tail.load(); };
    std::uint64_t expected = 6;
    SUBCASE("nothing is drained") {}
    SUBCASE("all is drained") {
        drain();
        expected = 0;
    }
    SUBCASE("a later write is not drained") {
        drain();
        REQUIRE(write_block(*store, writer, slot, 1, "bc", 2));
        expected = 3;
    }
    SUBCASE("a write has failed") {
        drain();
        note_error(*store, file, EIO);
    }
    lower_end(*store, slot);
    CHECK(file.end == expected);
}

TEST_CASE(
    "data are durable when their conflicts are resolved; nobody waits for a rank that has given "
    "up") {
    const Folder folder;
    const auto store = create_store(folder.path, 1);
    auto& head = store->head(0);
    head.pid = static_cast<std::uint32_t>(getpid());
    head.unresolved = 5;
    SUBCASE("its rank has given up") {
        const Progress found = progress(*store);
        CHECK((found.unresolved == 1 && found.failed == 0));
        CHECK((found.drained > 5 && found.synced > 5));  // its data are where they are
    }
    SUBCASE("its rank is at it") {
        head.resolving = 5;
        const Progress found = progress(*store);
        CHECK((found.unresolved == 0 && found.failed == 0));
        CHECK((found.drained == 5 && found.synced == 5));
    }
    SUBCASE("its rank was killed") {
        const pid_t child = fork();
        if (child == 0) _exit(0);
        REQUIRE(waitpid(child, nullptr, 0) == child);
        head.pid = static_cast<std::uint32_t>(child);
        head.resolving = 5;
        CHECK(progress(*store).failed == EIO);
    }
    CHECK(progress(*store).durable == 5);
}

TEST_CASE("each repetition of all failed writes counts, whether it succeeds or not") {
    const Folder folder;
    const auto store = create_store(folder.path, 1);
    const auto slot = slot_of_file(*store, folder.file("f"));
    const FileHandles handles(*store);
    Drain drain(*store, handles, 1);
    Writer writer(*store, 0);
    REQUIRE(write_block(*store, writer, slot, 0, "abcdef", 6));
    drain.finish(0, store->head(0).tail);
    note_error(*store, store->file(slot), EIO);
    const auto before = progress(*store).retries;
    drain.retry_all();
    CHECK(store->file(slot).error == 0);
    drain.retry_all();
    CHECK(progress(*store).retries == before + 2);
}

TEST_CASE("a drain without work leaves its lock to others") {
    const Folder folder;
    const auto store = create_store(folder.path, 1);
    const auto slot = slot_of_file(*store, folder.file("f"));
    const FileHandles handles(*store);
    Drain drain(*store, handles, 1);
    store->superblock().drain_lock = static_cast<std::uint32_t>(getpid());
    CHECK(drain.step(1) == Drain::Step::idle);
    Writer writer(*store, 0);
    REQUIRE(write_block(*store, writer, slot, 0, "abcdef", 6));
    CHECK(drain.step(1) == Drain::Step::busy);
    store->superblock().drain_lock = 0;
    CHECK(drain.step(1) == Drain::Step::moved);
}
