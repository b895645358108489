// The plan of an IOR test: its options, and the file offset of each transfer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "storage/content/content.hpp"
#include "storage/ranks/ranks.hpp"

namespace assay::storage {

// Most members are parameters of storage.ior, which ior.hpp explains. Sizes are in bytes.
struct Plan {
    std::string file, status_file;
    std::uint64_t transfer, block, segments;
    std::int64_t repetitions;
    std::uint64_t signature;
    Packet packet;
    std::uint64_t stonewall_transfers;  // 0: all
    double stonewall_s, delay_s;        // 0: none
    std::int64_t random_seed;
    int task_offset;
    bool write, read, check_write, check_read, read_own;
    bool collective, reorder, barriers, keep, fsync, file_per_process, random, preallocate;
    bool reorder_random, wear_out, existing, fsync_each, view;

    std::uint64_t transfers() const { return segments * (block / transfer); }  // of one rank
    bool is_stonewalled() const { return stonewall_s > 0 || stonewall_transfers > 0; }
    // Whether ranks may make fewer transfers than planned.
    bool is_partial() const { return is_stonewalled() || !status_file.empty(); }
    // The bytes that `ranks` ranks write.
    std::uint64_t bytes(int ranks) const {
        return static_cast<std::uint64_t>(ranks) * segments * block;
    }
    // The file offset of a rank's k-th transfer.
    std::uint64_t offset(std::uint64_t k, int rank, int ranks) const;
    // The path of the file that a rank writes.
    std::string file_of(int rank) const;
    // The numbers of a rank's transfers in the order in which they are made.
    std::vector<std::uint64_t> transfer_order() const;
    Json params() const;
};

// One plan per transfer size. Throws Error for options that contradict each other.
std::vector<Plan> read_plans(const Options& options);

// The rank whose data `rank` reads. With `reorder` it is on a node `node_shift` nodes further, as
// in IOR with ranks that are numbered node by node. On one node it is `node_shift` ranks further.
// With `reorder_random` it is random; a negative seed gives another choice in each repetition.
int writer_read_by(int rank, const Plan& plan, const Ranks& ranks, int node_shift,
                   std::int64_t repetition);

}  // namespace assay::storage
