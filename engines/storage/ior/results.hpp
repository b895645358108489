// The results of one operation of an IOR test over its repetitions, and their records.
#pragma once

#include "storage/content/content.hpp"
#include "storage/ior/plan.hpp"

namespace assay::storage {

inline constexpr std::size_t max_mismatches = 8;  // corruption records of a rank

// A transfer with wrong data.
struct LocatedMismatch {
    std::string file;
    int writer, reader;
    std::uint64_t transfer;
    Mismatch wrong;
};

// The results of one operation. The times of all ranks are on rank 0 only.
struct Tally {
    Histogram latency;  // this rank's
    std::uint64_t wrong = 0;
    std::vector<LocatedMismatch> mismatches;
    // Of this rank in the present pass: the time for transfers, the time for comparing, which is
    // not part of it, and the number of transfers.
    double own_s = 0, compare_s = 0;
    std::uint64_t own_transfers = 0;

    // A sample per repetition.
    std::vector<double> bandwidth, rate, open, transfer, close, total;
    std::vector<double> moved, stonewall_bandwidth;  // only of stonewalled passes
    std::vector<std::vector<double>> rank_times;     // by repetition and rank

    // `transfers`: those of all ranks.
    void add(double open_s, double transfer_s, double close_s, double total_s,
             std::vector<double> own_times, const Plan& plan, std::uint64_t transfers);
    void add_mismatches(const Tally& other);
};

// Collective; rank 0 writes the records. `read_from` says whose data were read; "" for a write.
void report(Ranks& ranks, const Plan& plan, const std::string& operation,
            const std::string& read_from, Tally& tally);

}  // namespace assay::storage
