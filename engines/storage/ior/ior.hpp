// Parallel I/O as IOR asks for it (its MPI-IO back end): every rank writes blocks of transfers into
// one file, or one each, and reads its own or another rank's back. By hand, under any MPI launcher:
//
//     mpirun -np 2 assay-io-openmpi run storage.ior --file /dev/shm/t --transfer 32k --block 192m
//       --reorder --fsync
//
// Of IOR's options each has a parameter; 'assay io bench ior' takes them under IOR's own names.
#pragma once

#include <array>

#include "storage/ranks/ranks.hpp"

namespace assay::storage {

namespace detail {
void run_ior(const Options&, Bench&);

inline constexpr std::array ior_parameters = {
    Parameter{"file", Kind::text, "", "", "the test file (IOR: -o)"},
    Parameter{"transfer", Kind::integers, "B", "256KiB",
              "sizes of a transfer, one after the other (-t)", 1, 1 << 30},
    Parameter{"block", Kind::integer, "B", "1MiB",
              "written by a rank in one piece of the file (-b); of several transfer sizes, rounded "
              "up to each",
              1, 1e15},
    Parameter{"segments", Kind::integer, "", "1",
              "how often the blocks of all ranks follow each other (-s)", 1, 1e9},
    Parameter{"repetitions", Kind::integer, "", "1", "how often all is done (-i)", 1, 1e6},
    Parameter{"write", Kind::flag, "", "", "write (-w)"},
    Parameter{"read", Kind::flag, "", "", "read (-r)"},
    Parameter{"check_write", Kind::flag, "", "",
              "read what was written again, untimed, and compare every byte (-W)"},
    Parameter{"check_read", Kind::flag, "", "",
              "compare every byte of each read transfer, beside the clock (-R)"},
    Parameter{"collective", Kind::flag, "", "", "collective calls (-c)"},
    Parameter{"reorder", Kind::flag, "", "", "read what another rank has written (-C)"},
    Parameter{"read_own", Kind::flag, "", "", "with reorder: read one's own data too, before"},
    Parameter{"task_offset", Kind::integer, "", "1",
              "from how many nodes further on; within one node, how many ranks (-Q)", 1, 1e7},
    Parameter{"barriers", Kind::flag, "", "",
              "barriers between opening, transfers and closing (-g)"},
    Parameter{"signature", Kind::integer, "", "0",
              "of the data, to read an earlier run's file; 0: another in each repetition (-G)", 0,
              4e9},
    Parameter{"keep", Kind::flag, "", "", "do not remove the file (-k)"},
    Parameter{"fsync", Kind::flag, "", "", "MPI_File_sync after writing, timed (-e)"},
    Parameter{"file_per_process", Kind::flag, "", "", "a file for each rank (-F)"},
    Parameter{"random", Kind::flag, "", "", "transfers in random order (-z)"},
    Parameter{"preallocate", Kind::flag, "", "", "preallocate the file before writing (-p)"},
    round_parameter,
    accelerated_parameter,
    timeout_parameter,
};
inline constexpr std::array ior_metrics = {
    Metric{"bandwidth", "B/s", Better::higher,
           "bytes of all ranks over the longest rank's time from opening to closing; each "
           "repetition a sample"},
    Metric{"rate", "1/s", Better::higher,
           "transfers of all ranks over the longest rank's time for them"},
    Metric{"latency", "s", Better::lower, "of one transfer, over all ranks and repetitions"},
    Metric{"open_time", "s", Better::lower, "the longest rank's"},
    Metric{"transfer_time", "s", Better::lower,
           "the longest rank's, with the sync that --fsync asks for"},
    Metric{"close_time", "s", Better::lower, "the longest rank's"},
    Metric{"total_time", "s", Better::lower, "the longest rank's, from opening to closing"},
    Metric{"straggler", "1", Better::none,
           "time of the slowest rank's own transfers over the median rank's; the subject is that "
           "rank"},
    Metric{"wrong", "1", Better::lower, "transfers that did not hold what was written there"},
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
