// The measurement storage.reaction_diffusion: a solver that computes, exchanges halos and writes
// snapshots: the Gray-Scott reaction-diffusion system on a periodic square, divided into tiles,
// with RDBench's options and files. To run it by hand, under any MPI launcher:
//
//     mpirun -np 4 assay-io-bench-openmpi run storage.reaction_diffusion --file /scratch/out_
#pragma once

#include <array>

#include "storage/ranks/ranks.hpp"

namespace assay::storage {

namespace detail {
void run_reaction_diffusion(const Options&, Bench&);

inline constexpr std::array reaction_diffusion_parameters = {
    Parameter{"file", Kind::text, "", "", "prefix of the snapshots' names (RDBench: --output)"},
    Parameter{"length", Kind::integer, "", "512", "edge of the square, in cells (-L)", 16, 1 << 20},
    Parameter{"steps", Kind::integer, "", "100", "number of time steps (--steps)", 1, 1e9},
    Parameter{"interval", Kind::integer, "", "10", "time steps between snapshots (--interval)", 1,
              1e9},
    Parameter{"iotype", Kind::text, "", "view",
              "manual: row by row; view: one call with a file view; chunk: tile by tile"},
    Parameter{"collective", Kind::flag, "", "", "collective calls (-c)"},
    Parameter{"nosync", Kind::flag, "", "", "do not call MPI_File_sync before closing (--nosync)"},
    Parameter{"xnp", Kind::integer, "", "0", "ranks in x; 0: chosen by MPI_Dims_create", 0, 1e6},
    Parameter{"ynp", Kind::integer, "", "0", "ranks in y; 0: chosen by MPI_Dims_create", 0, 1e6},
    Parameter{"nomkdir", Kind::flag, "", "", "do not make the snapshots' folder (--nomkdir)"},
    Parameter{"novalidate", Kind::flag, "", "",
              "do not read the snapshots back and compare them (--novalidate)"},
    Parameter{"disable_initial_output", Kind::flag, "", "",
              "no snapshot before the first step (--disable-initial-output)"},
    Parameter{"keep", Kind::flag, "", "", "do not remove the snapshots"},
    round_parameter,
    accelerated_parameter,
    timeout_parameter,
};
inline constexpr std::array reaction_diffusion_metrics = {
    Metric{"bandwidth", "B/s", Better::higher,
           "bytes of all snapshots divided by the longest rank's write time"},
    Metric{"compute_time", "s", Better::lower, "the longest rank's time for computing"},
    Metric{"communication_time", "s", Better::lower, "the longest rank's time for halo exchange"},
    Metric{"write_time", "s", Better::lower,
           "the longest rank's time from opening to closing, over all snapshots"},
    Metric{"total_time", "s", Better::lower,
           "the longest rank's time, without the comparison of the snapshots"},
    Metric{"snapshot_time", "s", Better::lower,
           "time from opening to closing of a snapshot; a sample per snapshot"},
    Metric{"wrong", "1", Better::lower, "snapshots with wrong data; not with novalidate"},
};
}  // namespace detail

inline constexpr Measurement reaction_diffusion{
    "storage.reaction_diffusion",
    Scope::group,
    "Computing, communication and snapshots through MPI-IO "
    "of a Gray-Scott solver, as in RDBench.",
    detail::reaction_diffusion_parameters,
    detail::reaction_diffusion_metrics,
    runs_anywhere,
    detail::run_reaction_diffusion};

}  // namespace assay::storage
