// The measurement storage.hdf5: writes and reads time steps through HDF5, in the patterns of
// h5bench. Each step is a group with eight variables of particles, of which each rank has a part.
// To run it by hand, under any MPI launcher:
//
//     mpirun -np 2 assay-io-bench-openmpi run storage.hdf5 --file /scratch/t.h5 --dim-1 1048576
//       --timesteps 5
#pragma once

#include <array>

#include "storage/ranks/ranks.hpp"

namespace assay::storage {

namespace detail {
std::optional<std::string> hdf5_waived();
void run_hdf5(const Options&, Bench&);

inline constexpr std::array hdf5_parameters = {
    Parameter{"file", Kind::text, "", "", "the file"},
    Parameter{"mem_pattern", Kind::text, "", "CONTIG",
              "memory layout: CONTIG, an array per variable; INTERLEAVED, an array of particles"},
    Parameter{"file_pattern", Kind::text, "", "CONTIG",
              "file layout: CONTIG, a dataset per variable; INTERLEAVED, a dataset of particles"},
    Parameter{"read_option", Kind::text, "", "FULL",
              "FULL, PARTIAL (the beginning of each rank's part) or STRIDED (1 dimension)"},
    Parameter{"to_read_num_particles", Kind::integer, "", "0",
              "for PARTIAL: particles of all ranks; 0: half of them", 0, 1e15},
    Parameter{"stride_size", Kind::integer, "", "64",
              "for STRIDED: distance of blocks, in particles", 1, 1e12},
    Parameter{"block_size", Kind::integer, "", "16", "for STRIDED: particles per block", 1, 1e12},
    Parameter{"timesteps", Kind::integer, "", "5", "number of time steps", 1, 1e6},
    Parameter{"collective_data", Kind::flag, "", "", "collective transfers of data"},
    Parameter{"collective_metadata", Kind::flag, "", "", "collective metadata operations"},
    Parameter{"compute_time", Kind::real, "s", "0", "emulated computation after each time step", 0,
              3600},
    Parameter{"num_dims", Kind::integer, "", "1", "number of dimensions: 1, 2 or 3", 1, 3},
    Parameter{"dim_1", Kind::integer, "", "1048576", "particles of a rank in the first dimension",
              1, 1e12},
    Parameter{"dim_2", Kind::integer, "", "1", "the same in the second dimension", 1, 1e12},
    Parameter{"dim_3", Kind::integer, "", "1", "the same in the third dimension", 1, 1e12},
    Parameter{"write", Kind::flag, "", "", "write; with neither write nor read: both"},
    Parameter{"read", Kind::flag, "", "",
              "read; alone: a file that was written with these settings"},
    Parameter{"keep", Kind::flag, "", "", "do not remove the file"},
    round_parameter,
    accelerated_parameter,
    timeout_parameter,
};
inline constexpr std::array hdf5_metrics = {
    Metric{"raw_rate", "B/s", Better::higher,
           "bytes of all ranks divided by the longest rank's time in H5Dwrite or H5Dread"},
    Metric{"observed_rate", "B/s", Better::higher,
           "the same bytes divided by the time from opening to closing the file, without the "
           "emulated computation"},
    Metric{"raw_time", "s", Better::lower, "the longest rank's time in H5Dwrite or H5Dread"},
    Metric{"metadata_time", "s", Better::lower,
           "the longest rank's time to create or open groups and datasets"},
    Metric{"open_time", "s", Better::lower, "the longest rank's time to open the file"},
    Metric{"close_time", "s", Better::lower, "the longest rank's time to close the file"},
    Metric{"compute_time", "s", Better::none, "emulated computation"},
    Metric{"observed_time", "s", Better::lower,
           "the longest rank's time from opening to closing, without the emulated computation"},
    Metric{"wrong", "1", Better::lower, "values that were read wrongly"},
};
}  // namespace detail

inline constexpr Measurement hdf5{
    "storage.hdf5",
    Scope::group,
    "Write and read of time steps through HDF5, in h5bench's patterns: raw and observed rates.",
    detail::hdf5_parameters,
    detail::hdf5_metrics,
    detail::hdf5_waived,
    detail::run_hdf5};

}  // namespace assay::storage
