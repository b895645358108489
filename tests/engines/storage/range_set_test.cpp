// Tests of RangeSet and SyncLedger against a model that has a state for each byte.
#include "storage/accelerator/range_set.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "storage/accelerator/sync_ledger.hpp"

using assay::storage::Range;
using assay::storage::RangeSet;
using assay::storage::SyncLedger;

namespace {

constexpr std::size_t file_bytes = 200;

// The state of a byte: never written, written but not synced, lost by a failed fsync, or durable.
enum class Byte { unwritten, unsynced, lost, durable };

std::vector<bool> bytes_of(const std::vector<Range>& ranges) {
    std::vector<bool> bytes(file_bytes);
    for (const auto& range : ranges)
        for (auto k = range.begin; k < std::min<std::uint64_t>(range.end, file_bytes); ++k)
            bytes[k] = true;
    return bytes;
}

void check_separate(const std::vector<Range>& ranges) {
    for (std::size_t k = 0; k < ranges.size(); ++k) {
        CHECK(ranges[k].begin < ranges[k].end);
        CHECK((k == 0 || ranges[k - 1].end < ranges[k].begin));
    }
}

}  // namespace

TEST_CASE("a set of ranges is the union of what was added without what was removed") {
    for (unsigned seed = 0; seed < 200; ++seed) {
        std::mt19937 random(seed);
        RangeSet set;
        std::vector<bool> expected(file_bytes);
        for (int step = 0; step < 60; ++step) {
            const std::uint64_t begin = random() % file_bytes, end = begin + random() % 20;
            const unsigned kind = random() % 8;
            if (kind == 0) set.truncate(begin);
            else if (kind < 3) set.remove({{begin, begin + 1 + end % 9}});
            else set.add(begin, end);
            for (std::size_t k = 0; k < file_bytes; ++k) {
                if (kind == 0) expected[k] = expected[k] && k < begin;
                else if (kind < 3) expected[k] = expected[k] && (k < begin || k > begin + end % 9);
                else expected[k] = expected[k] || (k >= begin && k < end);
            }
            check_separate(set.certain());
            auto bytes = bytes_of(set.certain());
            CHECK(bytes == expected);
            CHECK(set.empty() == set.certain().empty());
        }
    }
}

TEST_CASE("beyond its limit a set of ranges knows what is certain and what is possible") {
    RangeSet set;
    for (std::uint64_t k = 0; k < RangeSet::max_ranges + 100; ++k) set.add(10 * k, 10 * k + 1);
    CHECK(set.certain().size() == RangeSet::max_ranges);
    const auto possible = set.possible();
    check_separate(possible);
    CHECK(possible.back() ==
          Range{10 * RangeSet::max_ranges, 10 * (RangeSet::max_ranges + 99) + 1});
    set.truncate(5);
    CHECK(set.possible() == std::vector<Range>{{0, 1}});
}

TEST_CASE("the ledger knows what a failed fsync may have lost") {
    for (unsigned seed = 0; seed < 200; ++seed) {
        std::mt19937 random(seed);
        SyncLedger ledger;
        std::vector<Byte> bytes(file_bytes, Byte::unwritten);
        for (int step = 0; step < 80; ++step) {
            const std::uint64_t begin = random() % file_bytes,
                                end = std::min<std::uint64_t>(file_bytes, begin + random() % 60);
            const unsigned kind = random() % 8;
            if (kind < 5) {
                ledger.note_written(begin, end);
                std::fill(bytes.begin() + static_cast<long>(begin),
                          bytes.begin() + static_cast<long>(std::max(begin, end)), Byte::unsynced);
                continue;
            }
            ledger.begin_sync();
            // This write during the sync is not covered by it.
            ledger.note_written(0, 1);
            if (kind == 5) {
                ledger.postpone_sync();
            } else if (kind == 6) {
                ledger.fail_sync();
            } else {
                ledger.note_durable(ledger.covered().certain());
                ledger.succeed_sync();
            }
            for (auto& byte : bytes)
                if (byte == Byte::unsynced && kind > 5)
                    byte = kind == 6 ? Byte::lost : Byte::durable;
            bytes[0] = Byte::unsynced;
            const auto lost = bytes_of(ledger.lost().certain());
            for (std::size_t k = 1; k < file_bytes; ++k)
                // A lost byte that was written again stays lost until it is safe.
                if (bytes[k] != Byte::unsynced) CHECK(lost[k] == (bytes[k] == Byte::lost));
        }
    }
}

TEST_CASE("what the store writes again is not lost") {
    SyncLedger ledger;
    ledger.note_written(0, 10);
    ledger.begin_sync();
    ledger.fail_sync();
    ledger.note_stored(0, 10);
    ledger.begin_sync();
    ledger.fail_sync();  // the store can repeat its write
    ledger.begin_sync();
    ledger.note_durable(ledger.covered().certain());
    ledger.succeed_sync();
    CHECK(ledger.lost().empty());
}
