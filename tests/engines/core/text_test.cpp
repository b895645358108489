// Text of others that is printed.
#include "core/text.hpp"

#include <doctest/doctest.h>

using assay::printable;

TEST_CASE("what changes a terminal is not printed, and letters of all languages are") {
    CHECK(printable("plain \xc3\xa9\xe6\xbc\xa2") == "plain \xc3\xa9\xe6\xbc\xa2");
    CHECK(printable("a\x1b[31mb\rc\nd\x7f") == "a?[31mb?c?d?");
    CHECK(printable("C1 \xc2\x9b"
                    "2J") == "C1 ?2J");
    CHECK(printable("right \xe2\x80\xae to left \xe2\x81\xa6\xd8\x9c") == "right ? to left ??");
    CHECK(printable("cut \xc2") == "cut \xc2");
    CHECK(printable(std::string("zero\0", 5)) == "zero?");
}
