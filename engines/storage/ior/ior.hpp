// The measurement storage.ior: parallel I/O as IOR does it with its MPI-IO back end. Every rank
// writes blocks of transfers into a shared file or its own file, and reads back its own or another
// rank's data. To run it by hand, under any MPI launcher:
//
//     mpirun -np 2 assay-io-bench-openmpi run storage.ior --file /dev/shm/t --block 192m --fsync
//
// Each IOR option has a parameter; 'assay io bench ior' accepts IOR's own names.
#pragma once

#include <array>

#include "storage/ranks/ranks.hpp"

namespace assay::storage {

namespace detail {
void run_ior(const Options&, Bench&);

inline constexpr std::array ior_parameters = {
    Parameter{"file", Kind::text, "", "", "the test file (IOR: -o)"},
    Parameter{"transfer", Kind::integers, "B", "256KiB",
              "transfer sizes, measured one after the other (-t)", 1, 1 << 30},
    Parameter{
        "block", Kind::integer, "B", "1MiB",
        "contiguous bytes of a rank (-b); rounded up to each transfer size if there are several", 1,
        1e15},
    Parameter{"segments", Kind::integer, "", "1",
              "number of segments, each with a block of every rank (-s)", 1, 1e9},
    Parameter{"repetitions", Kind::integer, "", "1", "repetitions of the test (-i)", 1, 1e6},
    Parameter{"write", Kind::flag, "", "", "write (-w)"},
    Parameter{"read", Kind::flag, "", "", "read (-r)"},
    Parameter{"check_write", Kind::flag, "", "",
              "read the file back, untimed, and compare every byte (-W)"},
    Parameter{"check_read", Kind::flag, "", "",
              "compare every byte of each read transfer, outside of the timed part (-R)"},
    Parameter{"collective", Kind::flag, "", "", "collective calls (-c)"},
    Parameter{"reorder", Kind::flag, "", "", "read the data of another rank (-C)"},
    Parameter{"read_own", Kind::flag, "", "", "with reorder: first read the rank's own data too"},
    Parameter{"task_offset", Kind::integer, "", "1",
              "with reorder: distance to the writer in nodes; on one node, in ranks (-Q)", 1, 1e7},
    Parameter{"barriers", Kind::flag, "", "",
              "barriers between opening, transfers and closing (-g)"},
    Parameter{"reorder_random", Kind::flag, "", "",
              "each rank reads the data of a rank chosen at random, at least the task offset away "
              "where there are several nodes (-Z)"},
    Parameter{"random_seed", Kind::integer, "", "0",
              "seed of that choice; below 0: another choice in each repetition (-X)", -2147483648.0,
              2147483647.0},
    Parameter{"signature", Kind::integer, "", "0",
              "seed of the data, of which 32 bits count, needed to read an earlier run's file; 0: "
              "random (-G)",
              -2147483648.0, 4294967295.0},
    Parameter{"packet", Kind::text, "", "random",
              "data: random, timestamp, offset or incompressible (-l)"},
    Parameter{"stonewall", Kind::integer, "s", "0",
              "time after which no rank begins another transfer; 0: none (-D)", 0, 1e6},
    Parameter{
        "wear_out", Kind::flag, "", "",
        "after the stonewall every rank goes on to the number of transfers of the fastest (-O "
        "stoneWallingWearOut=1)"},
    Parameter{"stonewall_transfers", Kind::integer, "", "0",
              "number of transfers after which a rank stops; 0: all (-O "
              "stoneWallingWearOutIterations=N)",
              0, 1e15},
    Parameter{
        "status_file", Kind::text, "", "",
        "a stonewalled write stores in this file how many transfers each rank has made, and a "
        "read without a write takes them from it (-O stoneWallingStatusFile=F)"},
    Parameter{"existing", Kind::flag, "", "", "do not remove the file before writing (-E)"},
    Parameter{"fsync_each", Kind::flag, "", "", "call MPI_File_sync after each write, timed (-Y)"},
    Parameter{"view", Kind::flag, "", "",
              "a file view of the rank's blocks, instead of offsets in the file (-V)"},
    Parameter{"delay", Kind::integer, "s", "0", "pause before each phase (-d)", 0, 1e6},
    Parameter{"keep", Kind::flag, "", "", "do not remove the file (-k)"},
    Parameter{"fsync", Kind::flag, "", "", "call MPI_File_sync after writing, timed (-e)"},
    Parameter{"file_per_process", Kind::flag, "", "", "a file for each rank (-F)"},
    Parameter{"random", Kind::flag, "", "", "transfers in random order (-z)"},
    Parameter{"preallocate", Kind::flag, "", "", "preallocate the file before writing (-p)"},
    round_parameter,
    accelerated_parameter,
    timeout_parameter,
};
inline constexpr std::array ior_metrics = {
    Metric{
        "bandwidth", "B/s", Better::higher,
        "bytes of all ranks divided by the longest rank's time from opening to closing; a sample "
        "per repetition"},
    Metric{"rate", "1/s", Better::higher,
           "transfers of all ranks divided by the longest rank's time for them"},
    Metric{"latency", "s", Better::lower, "time of one transfer, of all ranks and repetitions"},
    Metric{"open_time", "s", Better::lower, "the longest rank's time to open the file"},
    Metric{"transfer_time", "s", Better::lower,
           "the longest rank's time for its transfers, with the sync of --fsync"},
    Metric{"close_time", "s", Better::lower, "the longest rank's time to close the file"},
    Metric{"total_time", "s", Better::lower, "the longest rank's time from opening to closing"},
    Metric{"straggler", "1", Better::none,
           "transfer time of the slowest rank divided by the median of the others; the subject is "
           "the slowest rank"},
    Metric{"wrong", "1", Better::lower, "transfers with wrong data, where they are compared"},
    Metric{"moved", "B", Better::none, "bytes that all ranks transferred, of a stonewalled pass"},
    Metric{"stonewall_bandwidth", "B/s", Better::higher,
           "with wear_out: bytes that all ranks had transferred at the stonewall divided by the "
           "longest rank's time until then"},
};
}  // namespace detail

inline constexpr Measurement ior{
    "storage.ior",
    Scope::group,
    "Bandwidth of parallel I/O through MPI-IO, as IOR measures it: write, read, verified.",
    detail::ior_parameters,
    detail::ior_metrics,
    runs_anywhere,
    detail::run_ior};

}  // namespace assay::storage
