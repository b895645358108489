// Tests of the index of writes. A model holds the expected newest write of every byte of a file;
// random writes and truncations go to both, and every lookup must agree with the model.
#include "storage/store/index.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <random>

using namespace assay::storage;

namespace {

constexpr std::uint64_t file_bytes = 4096;

// The newest write of a byte.
struct Byte {
    bool written = false;
    std::uint64_t sequence = 0, ring_offset = 0;
    std::uint32_t rank = 0;
};

// Writes of several ranks, and the expected state of each byte.
class Model {
public:
    explicit Model(unsigned seed)
        : random_(seed), index_([this](const Run& run, std::uint64_t block) {
              return records_[run.rank][run.first_record + block].sequence;
          }) {}

    void write(std::uint32_t rank, std::uint64_t begin, std::uint64_t length, std::uint64_t stride,
               std::uint64_t count) {
        Record record{};
        record.kind = static_cast<std::uint64_t>(RecordKind::data);
        record.sequence = ++clock_;
        record.begin = begin, record.length = length, record.stride = stride, record.count = count;
        record.ring_offset = ring_offset_[rank];
        for (std::uint64_t k = 0; k < count; ++k)
            for (std::uint64_t byte_index = 0;
                 byte_index < length && begin + k * stride + byte_index < file_bytes; ++byte_index)
                expected_[begin + k * stride + byte_index] = {
                    true, clock_, record.ring_offset + k * length + byte_index, rank};
        ring_offset_[rank] += length * count;
        end_ = std::max(end_, begin + (count - 1) * stride + length);
        records_[rank].push_back(record);
    }
    void truncate(std::uint32_t rank, std::uint64_t size) {
        Record record{};
        record.kind = static_cast<std::uint64_t>(RecordKind::truncate);
        record.sequence = ++clock_;
        record.begin = size;
        for (std::uint64_t k = size; k < file_bytes; ++k) expected_[k] = {};
        end_ = std::min(end_, size);
        records_[rank].push_back(record);
    }
    // Adds the new records to the index, rank after rank, so not in the order of sequences.
    void add_new_records() {
        for (std::uint32_t rank = 0; rank < ranks; ++rank)
            for (; added_records_[rank] < records_[rank].size(); ++added_records_[rank])
                index_.add(records_[rank][added_records_[rank]], rank, added_records_[rank]);
    }
    bool index_agrees() {
        add_new_records();
        for (std::uint64_t offset = 0; offset < file_bytes;) {
            const auto lookup = index_.find(offset, file_bytes);
            if (lookup.end <= offset || lookup.end > file_bytes) return false;
            for (std::uint64_t k = offset; k < lookup.end; ++k) {
                const auto& byte = expected_[k];
                if (byte.written != lookup.has_data) return false;
                if (lookup.has_data && (byte.rank != lookup.rank ||
                                        byte.ring_offset != lookup.ring_offset + (k - offset)))
                    return false;
            }
            offset = lookup.end;
        }
        return index_.end() == end_;
    }
    std::uint64_t random_below(std::uint64_t below) {
        return std::uniform_int_distribution<std::uint64_t>(0, below - 1)(random_);
    }

    static constexpr std::uint32_t ranks = 3;

private:
    std::mt19937 random_;
    std::uint64_t clock_ = 0, end_ = 0, ring_offset_[ranks]{}, added_records_[ranks]{};
    std::vector<Record> records_[ranks];
    std::vector<Byte> expected_ = std::vector<Byte>(file_bytes);
    Index index_;
};

}  // namespace

TEST_CASE("the newest write of each byte and the end of all are found") {
    for (unsigned seed = 0; seed < 200; ++seed) {
        Model model(seed);
        for (int step = 0; step < 60; ++step) {
            const auto rank = static_cast<std::uint32_t>(model.random_below(Model::ranks));
            const auto length = 1 + model.random_below(40),
                       begin = model.random_below(file_bytes - 2000);
            switch (model.random_below(8)) {
                case 0: model.truncate(rank, model.random_below(file_bytes)); break;
                case 1:
                    model.write(rank, begin, length, length + model.random_below(30),
                                1 + model.random_below(25));
                    break;
                case 2:  // a pattern of single writes, which others may interrupt
                    for (std::uint64_t k = 0, stride = length + model.random_below(20),
                                       n = 10 + model.random_below(20);
                         k < n; ++k) {
                        model.write(rank, begin + k * stride, length, length, 1);
                        if (!model.random_below(10))
                            model.write((rank + 1) % Model::ranks, begin + model.random_below(500),
                                        length, length, 1);
                    }
                    break;
                default: model.write(rank, begin, length, length, 1);
            }
            if (!model.random_below(4)) REQUIRE(model.index_agrees());
        }
        REQUIRE(model.index_agrees());
    }
}

TEST_CASE("a million strided writes of four ranks take less than a megabyte") {
    std::vector<Record> records;
    Index index([&](const Run&, std::uint64_t) { return std::uint64_t{0}; });
    constexpr std::uint64_t block = 4096, blocks_per_rank = 250'000;
    for (std::uint64_t k = 0; k < blocks_per_rank; ++k)
        for (std::uint32_t rank = 0; rank < 4; ++rank) {
            Record record{};
            record.kind = static_cast<std::uint64_t>(RecordKind::data);
            record.sequence = 4 * k + rank + 1;
            record.begin = (4 * k + rank) * block, record.length = record.stride = block,
            record.count = 1;
            record.ring_offset = k * block;
            index.add(record, rank, k);
        }
    CHECK(index.bytes() < 1'000'000);
    for (std::uint64_t k : {0ull, 1ull, 999'999ull, 123'456ull}) {
        const auto lookup = index.find(k * block + 5, 2'000'000 * block);
        CHECK(lookup.has_data);
        CHECK(lookup.rank == k % 4);
        CHECK(lookup.ring_offset == k / 4 * block + 5);
        CHECK(lookup.end == (k + 1) * block);
    }
    CHECK(!index.find(4 * blocks_per_rank * block, 4 * blocks_per_rank * block + 10).has_data);
}

TEST_CASE("offsets beyond 2 and 4 GiB, and single writes beyond them") {
    Index index([](const Run&, std::uint64_t) { return std::uint64_t{0}; });
    Record record{};
    record.kind = static_cast<std::uint64_t>(RecordKind::data);
    record.sequence = 1, record.begin = 5ull << 40, record.length = record.stride = 6ull << 30,
    record.count = 1;
    index.add(record, 7, 0);
    const auto lookup = index.find((5ull << 40) + (5ull << 30), 6ull << 40);
    CHECK(lookup.has_data);
    CHECK(lookup.ring_offset == 5ull << 30);
    CHECK(lookup.end == (5ull << 40) + (6ull << 30));
}

TEST_CASE("a superseded record is no write") {
    Index index([](const Run&, std::uint64_t) { return std::uint64_t{0}; });
    Record record{};
    record.kind = static_cast<std::uint64_t>(RecordKind::superseded);
    record.sequence = 1, record.length = record.stride = 10, record.count = 1;
    index.add(record, 0, 0);
    CHECK(!index.find(0, 10).has_data);
    CHECK(index.runs() + index.extents() == 0);
}

TEST_CASE(
    "a write whose sequence is not known any more is compared by the sequence that stands for it") {
    std::vector<WriteSequence> sequences;
    Index index([&](const Run&, std::uint64_t block) { return sequences[block]; });
    Record record{};
    record.kind = static_cast<std::uint64_t>(RecordKind::data);
    record.length = record.stride = 10, record.count = 1;
    // A run of 20 blocks, at the sequences 100, 101, ... Its last block ends before an older write.
    for (std::uint64_t k = 0; k < 20; ++k) {
        record.sequence = 100 + k, record.begin = record.ring_offset = 10 * k;
        sequences.emplace_back(record.sequence);
        index.add(record, 0, k);
    }
    record.sequence = 50, record.begin = 0, record.length = record.stride = 300;
    index.add(record, 1, 0);
    sequences[3] = {107, false};
    SUBCASE("as a run") {}
    SUBCASE("as extents") {
        for (std::uint64_t k = 0; k < 70; ++k) {  // longer runs take its place
            record.sequence = 10, record.begin = 1000 + 30 * k;
            record.length = 1, record.stride = 2000, record.count = 21 + k;
            index.add(record, 2, k);
        }
    }
    CHECK(index.find(30, 40).sequence == 107);
    const Lookup certain = index.find_certain(30, 40);
    CHECK(certain.has_data);
    CHECK(certain.sequence == 50);
    CHECK(certain.end == 40);
    CHECK(index.find_certain(35, 60).end == 40);
    CHECK(index.find_certain(40, 60).sequence == 104);
    CHECK(index.find_certain(200, 300).sequence == 50);
    // A write between its sequence and the newest of the run.
    record.sequence = 110, record.begin = 30, record.length = record.stride = 5, record.count = 1;
    index.add(record, 3, 0);
    const Lookup newer = index.find(30, 40);
    CHECK(newer.rank == 3);
    CHECK(newer.end == 35);
    CHECK(index.find(35, 40).rank == 0);
    record.sequence = 200;
    index.add(record, 3, 1);
    CHECK(index.find(30, 40).sequence == 200);
}

TEST_CASE("truncations that a newer one covers take no memory") {
    Index index([](const Run&, std::uint64_t) { return std::uint64_t{0}; });
    Record record{};
    record.kind = static_cast<std::uint64_t>(RecordKind::data);
    record.sequence = 50, record.length = record.stride = 1000, record.count = 1;
    index.add(record, 0, 0);
    record.kind = static_cast<std::uint64_t>(RecordKind::truncate);
    for (std::uint64_t k = 0; k < 10'000; ++k) {
        record.sequence = 100 + k, record.begin = 20'000 - k;
        index.add(record, k % 4, k);
    }
    record.sequence = 40, record.begin = 10;  // older than the data
    index.add(record, 0, 10'000);
    record.sequence = 60, record.begin = 300;
    index.add(record, 1, 10'001);
    record.sequence = 55, record.begin = 300;  // covered when it comes
    index.add(record, 2, 10'002);
    CHECK(index.bytes() < 10'000);
    CHECK(index.find(200, 1000).has_data);
    CHECK(index.find(200, 1000).end == 300);
    CHECK(!index.find(300, 1000).has_data);
    CHECK(index.end() == 300);
}
