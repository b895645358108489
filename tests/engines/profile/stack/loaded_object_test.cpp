// Both ways to find an object's unwind tables give the same answer: the program, libc and code of
// no object.
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "profile/stack/loaded_object.hpp"

namespace {

using assay::stack::find_in_list_of_objects;
using assay::stack::find_loaded_object;
using assay::stack::LoadedObject;

template <class Function>
std::uint64_t address_of(Function* function) {
    return reinterpret_cast<std::uint64_t>(function) + 1;
}

void here() {}

TEST_CASE("the list of objects has the tables that glibc 2.35 finds") {
    for (const std::uint64_t address : {address_of(&here), address_of(&std::qsort)}) {
        LoadedObject found, listed;
        REQUIRE(find_loaded_object(address, found));
        REQUIRE(find_in_list_of_objects(address, listed));
        CHECK(found.tables == listed.tables);
        CHECK(listed.begin <= listed.tables);
        CHECK(listed.tables < listed.end);
    }
}

TEST_CASE("memory of no object has no tables") {
    const std::string text(4096, ' ');
    LoadedObject object;
    CHECK_FALSE(find_loaded_object(reinterpret_cast<std::uint64_t>(text.data()), object));
    CHECK_FALSE(find_in_list_of_objects(reinterpret_cast<std::uint64_t>(text.data()), object));
}

}  // namespace
