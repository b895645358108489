// A solver that computes, exchanges halos and writes snapshots: the Gray-Scott reaction-diffusion
// system on a periodic square, shared out in tiles, with RDBench's options and files. By hand,
// under any MPI launcher:
//
//     mpirun -np 4 assay-io-openmpi run storage.reaction_diffusion --file /scratch/out_ --length
//       1024 --iotype view
#pragma once

#include <array>

#include "storage/ranks/ranks.hpp"

namespace assay::storage {

namespace detail {
void run_reaction_diffusion(const Options&, Bench&);

inline constexpr std::array reaction_diffusion_parameters = {
    Parameter{"file", Kind::text, "", "", "prefix of the snapshots' names (RDBench: --output)"},
    Parameter{"length", Kind::integer, "", "512", "edge of the square, in cells (-L)", 16, 1 << 20},
    Parameter{"steps", Kind::integer, "", "100", "of time (--steps)", 1, 1e9},
    Parameter{"interval", Kind::integer, "", "10",
              "steps from one snapshot to the next (--interval)", 1, 1e9},
    Parameter{"iotype", Kind::text, "", "view",
              "manual: row by row; view: one call with a file view; chunk: tile after tile"},
    Parameter{"collective", Kind::flag, "", "", "collective calls (-c)"},
    Parameter{"nosync", Kind::flag, "", "", "no MPI_File_sync before closing (--nosync)"},
    Parameter{"xnp", Kind::integer, "", "0", "ranks in x; 0: as MPI_Dims_create shares out", 0,
              1e6},
    Parameter{"ynp", Kind::integer, "", "0", "ranks in y", 0, 1e6},
    Parameter{"keep", Kind::flag, "", "", "do not remove the snapshots"},
    round_parameter,
    accelerated_parameter,
    timeout_parameter,
};
inline constexpr std::array reaction_diffusion_metrics = {
    Metric{"bandwidth", "B/s", Better::higher,
           "bytes of all snapshots over the longest rank's time for writing them"},
    Metric{"compute_time", "s", Better::lower, "the longest rank's"},
    Metric{"communication_time", "s", Better::lower, "of halo exchange, the longest rank's"},
    Metric{"write_time", "s", Better::lower,
           "from opening to closing of all snapshots, the longest rank's"},
    Metric{"total_time", "s", Better::lower,
           "the longest rank's, without the comparing of what was written"},
    Metric{"snapshot_time", "s", Better::lower,
           "from opening to closing of one snapshot; each a sample"},
    Metric{"wrong", "1", Better::lower,
           "snapshots whose file did not hold the cells as they were computed"},
};
}  // namespace detail

inline constexpr Measurement reaction_diffusion{"storage.reaction_diffusion",
                                                Scope::group,
                                                "A Gray-Scott solver's computing, communication "
                                                "and snapshots through MPI-IO, as RDBench has it.",
                                                detail::reaction_diffusion_parameters,
                                                detail::reaction_diffusion_metrics,
                                                runs_anywhere,
                                                detail::run_reaction_diffusion};

}  // namespace assay::storage
