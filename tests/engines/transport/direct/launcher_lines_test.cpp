// The lines that a launcher sends to a rank, in pieces of any size.
#include "transport/direct/launcher_lines.hpp"

#include <doctest/doctest.h>

using assay::direct::LauncherLines;

TEST_CASE("lines are whole, in their order, however their bytes arrive") {
    LauncherLines lines;
    CHECK(!lines.take());
    lines.add("fir");
    CHECK(!lines.take());
    lines.add("st\nsecond\n\nthi");
    CHECK(lines.take() == "first");
    CHECK(lines.take() == "second");
    CHECK(lines.take() == "");
    CHECK(!lines.take());
    lines.add("rd\n");
    CHECK(lines.take() == "third");
}

TEST_CASE("a line that is too long is left out, and takes no memory") {
    LauncherLines lines;
    const std::string piece(1 << 24, 'x');
    for (int i = 0; i < 6; ++i) lines.add(piece);
    lines.add("\nnext\n");
    CHECK(lines.take() == "next");
    CHECK(!lines.take());
}
