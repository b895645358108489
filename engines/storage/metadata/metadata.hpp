// The measurement storage.metadata: rates of metadata operations, as in mdtest. Every rank makes,
// looks up, opens, lists, renames and removes files and directories, through POSIX and through
// MPI-IO. To run it by hand, under any MPI launcher:
//
//     mpirun -np 2 assay-io-bench-openmpi run storage.metadata --file /scratch/t --items 1000
//
// 'assay io bench metadata' also accepts mdtest's names of the options.
#pragma once

#include <array>

#include "storage/ranks/ranks.hpp"

namespace assay::storage {

namespace detail {
void run_metadata(const Options&, Bench&);

inline constexpr std::array metadata_parameters = {
    Parameter{"file", Kind::text, "", "", "a folder that is made and removed (mdtest: -d)"},
    Parameter{"api", Kind::text, "", "both", "posix, mpiio or both (-a)"},
    Parameter{"items", Kind::integer, "", "1000", "files, and directories, of each rank (-n)", 1,
              1e9},
    Parameter{"iterations", Kind::integer, "", "3", "repetitions of the test (-i)", 1, 1e6},
    Parameter{"unique", Kind::flag, "", "",
              "a directory for each rank; otherwise all ranks share one (-u)"},
    Parameter{
        "shift", Kind::integer, "", "-1",
        "distance in ranks to the rank whose items are used next; 0: own items; -1: 1, or with "
        "several nodes the number of ranks of a node (-N)",
        -1, 1e7},
    Parameter{"bytes", Kind::integer, "B", "0",
              "written to each file by create, compared by open (-w, -e)", 0, 1 << 30},
    Parameter{"fsync", Kind::flag, "", "", "create also calls fsync, or MPI_File_sync (-y)"},
    Parameter{"files_only", Kind::flag, "", "", "no operations on directories (-F)"},
    Parameter{"directories_only", Kind::flag, "", "", "no operations on files (-D)"},
    Parameter{"stonewall", Kind::integer, "s", "0",
              "time after which no rank begins another operation of a phase; 0: none (-W)", 0, 1e6},
    round_parameter,
    accelerated_parameter,
    timeout_parameter,
};
inline constexpr std::array metadata_metrics = {
    Metric{"rate", "1/s", Better::higher,
           "operations of all ranks divided by the longest rank's time for them; of readdir: "
           "entries; a sample per iteration"},
    Metric{"latency", "s", Better::lower, "time of one operation, of all ranks and iterations"},
    Metric{"time", "s", Better::lower, "the longest rank's time; a sample per iteration"},
    Metric{"operations", "1", Better::none,
           "operations of all ranks; of readdir: entries; a sample per iteration"},
    Metric{"straggler", "1", Better::none,
           "time of the slowest rank's operations divided by the median of the others; the subject "
           "is the slowest rank"},
    Metric{"wrong", "1", Better::lower,
           "items that were not there, or not as they were made: kind, size, content, number of "
           "entries"},
};
}  // namespace detail

inline constexpr Measurement metadata{
    "storage.metadata",
    Scope::group,
    "Rates of creating, looking up, opening, listing, renaming and removing files, as in mdtest.",
    detail::metadata_parameters,
    detail::metadata_metrics,
    runs_anywhere,
    detail::run_metadata};

}  // namespace assay::storage
