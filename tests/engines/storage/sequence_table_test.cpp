// Tests of SequenceTable: it stays about as short as the ring, and it finds the sequence of every
// record that is in the ring.
#include "storage/accelerator/sequence_table.hpp"

#include <doctest/doctest.h>

#include <algorithm>

using assay::storage::SequenceTable;

TEST_CASE("the table stays short, however many records are added") {
    constexpr std::uint64_t ring = 10'000, records = 1'000'000;
    SequenceTable table;
    std::size_t longest = 0;
    for (std::uint64_t k = 0; k < records; ++k) {
        table.add(2 * k, 1000 + 3 * k);  // this file has every other record of the ring
        if (k % 100 == 0) table.drop_before(k < ring ? 0 : 1000 + 3 * (k - ring));
        longest = std::max(longest, table.size());
        if (k % 1000 != 0) continue;
        for (const std::uint64_t position : {k, k < ring ? 0 : k - ring})
            CHECK(table.find(2 * position) == 1000 + 3 * position);
        CHECK_FALSE(table.find(2 * k + 1));
    }
    CHECK(longest <= 2 * ring + 200);
    CHECK_FALSE(table.find(0));
}

TEST_CASE("a tombstone with an old sequence does not hide newer records behind it") {
    SequenceTable table;
    for (std::uint64_t k = 0; k < 6000; ++k) table.add(k, k == 3000 ? 5 : 10'000 + k);
    table.drop_before(12'000);
    CHECK(table.size() == 4000);
    CHECK(table.find(3000) == 5);
    CHECK(table.find(5999) == 15'999);
}
