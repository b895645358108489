// An index of the writes of one file: finds, for each byte, the newest write among the records of
// all known ranks.
//
// Blocks of one size that a rank writes at a constant stride are stored as one run, however many
// they are. Other writes are stored as extents (ranges of bytes), which are sorted and disjoint.
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

// A value of Lookup::rank: the bytes are only in the file system.
constexpr std::uint32_t file_system_rank = ~0u >> 1;

// Blocks of one rank: block i is [begin + i * stride, + length) of the file and lies at
// ring_offset + i * length of the rank's data ring.
struct Run {
    std::uint64_t begin, length, stride, count;
    std::uint64_t ring_offset;
    std::uint64_t first_record;    // record number in the ring
    std::uint64_t oldest, newest;  // sequences
    std::uint32_t rank;
    std::uint32_t records;  // 1: all blocks are of one record; else each block is a record
    std::uint64_t end() const { return begin + (count - 1) * stride + length; }
};

// Where the newest data of a byte are.
struct Lookup {
    bool has_data = false;  // false: no rank has written it, read the file system
    std::uint32_t rank = 0;
    std::uint64_t ring_offset = 0;
    std::uint64_t end = 0;  // file offset at which the bytes end for which this answer holds
    std::uint64_t sequence = 0;
};

// The sequence of a write, or one to compare an evicted write with, whose own is not known any
// more.
struct WriteSequence {
    WriteSequence(std::uint64_t sequence, bool known = true) : value(sequence), is_known(known) {}
    std::uint64_t value;
    bool is_known;
};

class Index {
public:
    // `sequence_of(run, block)` returns the sequence of a block in a run of many records.
    using SequenceOf = std::function<WriteSequence(const Run&, std::uint64_t block)>;
    explicit Index(SequenceOf sequence_of) : sequence_of_(std::move(sequence_of)) {}

    // Adds a rank's record; `position` is its number in the rank's ring. Records of a rank must be
    // added in order.
    void add(const Record& record, std::uint32_t rank, std::uint64_t position);
    void add(const Run& run);

    // The newest write of the byte at `offset`, and the end (at most `end`) of the bytes for which
    // the same answer holds. find_certain() leaves out writes whose sequence is not known.
    Lookup find(std::uint64_t offset, std::uint64_t end) { return find(offset, end, false); }
    Lookup find_certain(std::uint64_t offset, std::uint64_t end) { return find(offset, end, true); }

    // The end of the bytes of a write, or of the furthest write, that no newer truncation has cut.
    std::uint64_t end_of(std::uint64_t sequence, std::uint64_t end) const;
    std::uint64_t end() const;

    // Bytes of memory used, and the numbers of runs and extents.
    std::size_t bytes() const;
    std::size_t runs() const { return runs_.size() + growing_.size(); }
    std::size_t extents() const { return sorted_.size() + recent_.size(); }

private:
    struct Extent {
        std::uint64_t begin, end, ring_offset, sequence;
        std::uint32_t rank;
        bool is_certain;  // its sequence is known
    };
    struct Truncation {
        std::uint64_t sequence, size;
    };

    Lookup find(std::uint64_t offset, std::uint64_t end, bool certain);
    void split(const Run& run);
    void insert(Extent extent);
    void compact();
    void update_if_newer(Lookup& best, std::uint64_t offset, const Extent& candidate) const;
    Extent block_of(const Run& run, std::uint64_t block, bool needs_sequence) const;
    bool is_truncated(std::uint64_t sequence, std::uint64_t offset) const;

    SequenceOf sequence_of_;
    std::vector<Run> runs_;
    std::map<std::uint32_t, Run> growing_;    // by rank: the next record may extend it
    std::vector<Extent> sorted_;              // disjoint, by begin
    std::map<std::uint64_t, Extent> recent_;  // disjoint, by begin; compact() merges it
    std::vector<Truncation> truncations_;
};

}  // namespace assay::storage
