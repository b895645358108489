// Where each byte of a file lies: the newest write of it, among all ranks that are known.
//
// Programs write in patterns. A rank that writes blocks of one size at a constant stride is one run
// here, however many blocks there are; what follows no pattern goes, cut to what is newest, into
// sorted extents. Levels may overlap: a lookup takes the newest of what covers a byte, by the
// sequence of the record that wrote it, so nothing is ever resolved that is not asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "storage/store/layout.hpp"

namespace assay::storage {

// A rank that is none: the file system has the bytes.
constexpr std::uint32_t in_file = ~0u >> 1;

// Blocks of one rank: block i is [begin + i * stride, + length) of the file and lies at place + i *
// length.
struct Run {
    std::uint64_t begin, length, stride, count;
    std::uint64_t place;
    std::uint64_t record;          // position of the first record
    std::uint64_t oldest, newest;  // sequences
    std::uint32_t rank;
    std::uint32_t records;  // 1: all blocks are of one record; else one record a block
    std::uint64_t end() const { return begin + (count - 1) * stride + length; }
};

struct Found {
    bool data = false;  // else: no rank has written it, ask the file system
    std::uint32_t rank = 0;
    std::uint64_t place = 0;
    std::uint64_t upto = 0;  // the answer holds until here
    std::uint64_t sequence = 0;
};

class Index {
public:
    // `sequence_of(run, block)`: for runs of many records, which are still in the ring of their
    // rank or not.
    using SequenceOf = std::function<std::uint64_t(const Run&, std::uint64_t block)>;
    explicit Index(SequenceOf sequence_of) : sequence_of_(std::move(sequence_of)) {}

    // A record of a rank, in the order of its ring (`position`).
    void add(const Record& record, std::uint32_t rank, std::uint64_t position);
    // A run that another node has told of.
    void add(const Run& run);
    void clear();

    // Who has byte `at`, and until where at most `end` that is so.
    Found find(std::uint64_t at, std::uint64_t end);

    // For tests and for the curious.
    std::size_t bytes() const;
    std::size_t runs() const { return runs_.size() + open_.size(); }
    std::size_t extents() const { return sorted_.size() + recent_.size(); }

private:
    struct Extent {
        std::uint64_t begin, end, place, sequence;
        std::uint32_t rank;
    };
    struct Cut {
        std::uint64_t sequence, size;
    };

    void dissolve(const Run& run);
    void insert(Extent extent);
    void settle();
    void consider(Found& best, std::uint64_t at, const Extent& candidate) const;
    std::uint64_t sequence(const Run& run, std::uint64_t block) const;
    bool cut_off(std::uint64_t sequence, std::uint64_t at) const;

    SequenceOf sequence_of_;
    std::vector<Run> runs_;
    std::map<std::uint32_t, Run> open_;  // by rank: may still grow
    std::vector<Extent> sorted_;         // disjoint, by begin
    std::map<std::uint64_t, Extent>
        recent_;  // disjoint, by begin; merged into sorted_ now and then
    std::vector<Cut> cuts_;
};

}  // namespace assay::storage
