// What is asked for, and where each transfer lies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "storage/ranks/ranks.hpp"

namespace assay::storage {

struct Plan {
    std::string file;
    std::uint64_t transfer, block, segments;
    std::int64_t repetitions;
    std::uint64_t signature;
    int task_offset;
    bool write, read, check_write, check_read, read_own;
    bool collective, reorder, barriers, keep, fsync, file_per_process, random, preallocate;

    std::uint64_t transfers() const { return segments * (block / transfer); }  // of one rank
    std::uint64_t bytes(int ranks) const {
        return static_cast<std::uint64_t>(ranks) * segments * block;
    }
    // Of the k-th transfer of a rank's part.
    std::uint64_t offset(std::uint64_t k, int rank, int ranks) const;
    std::string file_of(int rank) const;
    // The offsets of a rank's transfers in the order in which they are made.
    std::vector<std::uint64_t> order() const;
    Json params() const;
};

// One plan for each transfer size. Throws Error for what contradicts itself.
std::vector<Plan> read_plans(const Options& options);

// Whose data a rank reads: with `reorder` a rank's some nodes further on, as IOR has it with ranks
// placed node by node. On one node that would be its own again, so there it is another rank's.
int writer_read_by(int rank, const Plan& plan, const Ranks& ranks, int nodes_further);

}  // namespace assay::storage
