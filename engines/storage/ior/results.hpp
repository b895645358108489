// What the repetitions of one plan have shown, and its records.
#pragma once

#include "storage/content/content.hpp"
#include "storage/ior/plan.hpp"

namespace assay::storage {

inline constexpr std::size_t located_at_most = 8;  // wrong transfers that a rank says the place of

struct Located {
    std::string file;
    int writer, reader;
    std::uint64_t transfer;
    Wrong wrong;
};

// Of one operation. Rank 0 has the times of all.
struct Tally {
    Histogram latency;  // this rank's
    std::uint64_t wrong = 0;
    std::vector<Located> located;
    double own = 0,
           beside =
               0;  // of the present pass: this rank's transfers; comparing, which is not counted

    // A sample a repetition.
    std::vector<double> bandwidth, rate, open, transfer, close, total;
    std::vector<std::vector<double>> rank_times;

    void add(double open_s, double transfer_s, double close_s, double total_s,
             std::vector<double> own_times, const Plan& plan, int ranks);
    void take_wrong(const Tally& other);
};

// Collective; rank 0 writes the records. `read_from` says whose data was read, "" of a write.
void report(Ranks& ranks, const Plan& plan, const std::string& operation,
            const std::string& read_from, Tally& tally);

}  // namespace assay::storage
