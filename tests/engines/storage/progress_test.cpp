// Tests of a node's progress: the end of a file that others may have made shorter.
#include "storage/store/progress.hpp"

#include <doctest/doctest.h>

#include <cerrno>

#include "storage/store/durability.hpp"
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
