// Records without data that name bytes of files: tombstones and superseded records. Pieces of one
// length at a constant stride become one record, as strided writes are one.
#pragma once

#include <cstdint>
#include <vector>

#include "storage/store/layout.hpp"

namespace assay::storage {

class RangeRecords {
public:
    explicit RangeRecords(RecordKind kind) : kind_(kind) {}
    // Adds the bytes [begin, end) of a file.
    void add(std::uint32_t file, std::uint32_t generation, std::uint64_t sequence,
             std::uint64_t begin, std::uint64_t end);
    std::vector<Record>& records() { return records_; }

private:
    RecordKind kind_;
    std::vector<Record> records_;
};

}  // namespace assay::storage
