// Tests of the records that name ranges of bytes.
#include "storage/accelerator/range_records.hpp"

#include <doctest/doctest.h>

#include <random>
#include <set>
#include <utility>

using namespace assay::storage;

TEST_CASE("ranges at a constant stride become one record") {
    RangeRecords ranges(RecordKind::superseded);
    for (std::uint64_t k = 0; k < 100; ++k) ranges.add(3, 2, 7, 1000 + 64 * k, 1008 + 64 * k);
    REQUIRE(ranges.records().size() == 1);
    const Record& record = ranges.records()[0];
    CHECK(record.file == 3);
    CHECK(record.generation == 2);
    CHECK(record.sequence == 7);
    CHECK(static_cast<RecordKind>(record.kind) == RecordKind::superseded);
    CHECK(record.begin == 1000);
    CHECK(record.length == 8);
    CHECK(record.stride == 64);
    CHECK(record.count == 100);
}

TEST_CASE("the records cover the bytes that were added, and no others") {
    std::mt19937_64 random(1);
    for (int round = 0; round < 200; ++round) {
        RangeRecords ranges(RecordKind::tombstone);
        std::multiset<std::pair<std::uint64_t, std::uint64_t>> expected, actual;  // byte, sequence
        for (std::uint64_t k = 0, begin = 0; k < 30; ++k) {
            begin = random() % 8 ? begin + 4 * (random() % 3) : random() % 100;
            const std::uint64_t end = begin + 4 * (1 + random() % 2), sequence = random() % 8 != 0;
            ranges.add(0, 1, sequence, begin, end);
            for (std::uint64_t byte = begin; byte < end; ++byte) expected.insert({byte, sequence});
        }
        for (const Record& record : ranges.records())
            for (std::uint64_t k = 0; k < record.count; ++k)
                for (std::uint64_t byte = 0; byte < record.length; ++byte)
                    actual.insert({record.begin + k * record.stride + byte, record.sequence});
        CHECK(actual == expected);
    }
}
