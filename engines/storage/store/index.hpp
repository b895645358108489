// An index of one file: for each byte, the newest write among all known ranks.
//
// Programs write in patterns. Blocks of one size that a rank writes at a constant stride are one
// run, however many they are. Other writes go into sorted extents, which do not overlap each other.
// Runs and extents may overlap: a lookup takes the write with the highest sequence among those that
// cover the byte, so conflicts are resolved only for bytes that are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "storage/store/layout.hpp"

namespace assay::storage {

// In place of a rank: the bytes are in the file system only.
constexpr std::uint32_t file_system_rank = ~0u >> 1;

// Blocks of one rank: block i is [begin + i * stride, + length) of the file and lies at
// ring_offset + i * length of the rank's data ring.
struct Run {
    std::uint64_t begin, length, stride, count;
    std::uint64_t ring_offset;
    std::uint64_t first_record;    // record number in the ring
    std::uint64_t oldest, newest;  // sequences
    std::uint32_t rank;
    std::uint32_t records;  // 1: all blocks are of one record; else one record a block
    std::uint64_t end() const { return begin + (count - 1) * stride + length; }
};

struct Lookup {
    bool has_data = false;  // false: no rank has written it, read the file system
    std::uint32_t rank = 0;
    std::uint64_t ring_offset = 0;
    std::uint64_t end = 0;  // of the bytes that this answer holds for
    std::uint64_t sequence = 0;
};

class Index {
public:
    // `sequence_of(run, block)` returns the sequence of a block in a run of many records.
    using SequenceOf = std::function<std::uint64_t(const Run&, std::uint64_t block)>;
    explicit Index(SequenceOf sequence_of) : sequence_of_(std::move(sequence_of)) {}

    // Adds a rank's record; `position` is its number. Records of a rank come in order.
    void add(const Record& record, std::uint32_t rank, std::uint64_t position);
    void add(const Run& run);
    void clear();

    // Who has byte `offset`, and the end of the bytes (at most `end`) for which that holds.
    Lookup find(std::uint64_t offset, std::uint64_t end);

    // Memory used, and numbers of runs and extents.
    std::size_t bytes() const;
    std::size_t runs() const { return runs_.size() + growing_.size(); }
    std::size_t extents() const { return sorted_.size() + recent_.size(); }

private:
    struct Extent {
        std::uint64_t begin, end, ring_offset, sequence;
        std::uint32_t rank;
    };
    struct Truncation {
        std::uint64_t sequence, size;
    };

    void split(const Run& run);
    void insert(Extent extent);
    void compact();
    void update_if_newer(Lookup& best, std::uint64_t offset, const Extent& candidate) const;
    std::uint64_t sequence(const Run& run, std::uint64_t block) const;
    bool is_truncated(std::uint64_t sequence, std::uint64_t offset) const;

    SequenceOf sequence_of_;
    std::vector<Run> runs_;
    std::map<std::uint32_t, Run> growing_;    // by rank: the next record may extend it
    std::vector<Extent> sorted_;              // disjoint, by begin
    std::map<std::uint64_t, Extent> recent_;  // disjoint, by begin; compact() merges it
    std::vector<Truncation> truncations_;
};

}  // namespace assay::storage
