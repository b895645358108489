// Datasets of time steps through HDF5, in the patterns of h5bench's write and read: each step is a
// group with eight variables of particles; each rank has its share of each. By hand, under any MPI
// launcher:
//
//     mpirun -np 2 assay-io-openmpi run storage.hdf5 --file /scratch/t.h5 --dim-1 1048576
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
              "in memory: CONTIG, an array a variable; INTERLEAVED, an array of particles"},
    Parameter{"file_pattern", Kind::text, "", "CONTIG",
              "in the file: CONTIG, a dataset a variable; INTERLEAVED, one of particles"},
    Parameter{"read_option", Kind::text, "", "FULL",
              "FULL, PARTIAL (the first of each rank's share) or STRIDED (1 dimension)"},
    Parameter{"to_read_num_particles", Kind::integer, "", "0",
              "of PARTIAL, over all ranks; 0: half of them", 0, 1e15},
    Parameter{"stride_size", Kind::integer, "", "64",
              "of STRIDED: particles from one block to the next", 1, 1e12},
    Parameter{"block_size", Kind::integer, "", "16", "of STRIDED: particles in a block", 1, 1e12},
    Parameter{"timesteps", Kind::integer, "", "5", "of the file", 1, 1e6},
    Parameter{"collective_data", Kind::flag, "", "", "collective transfers of data"},
    Parameter{"collective_metadata", Kind::flag, "", "", "collective metadata operations"},
    Parameter{"compute_time", Kind::real, "s", "0", "emulated, after each time step", 0, 3600},
    Parameter{"num_dims", Kind::integer, "", "1", "1, 2 or 3", 1, 3},
    Parameter{"dim_1", Kind::integer, "", "1048576", "particles of a rank in the first dimension",
              1, 1e12},
    Parameter{"dim_2", Kind::integer, "", "1", "in the second", 1, 1e12},
    Parameter{"dim_3", Kind::integer, "", "1", "in the third", 1, 1e12},
    Parameter{"keep", Kind::flag, "", "", "do not remove the file"},
    round_parameter,
    accelerated_parameter,
    timeout_parameter,
};
inline constexpr std::array hdf5_metrics = {
    Metric{"raw_rate", "B/s", Better::higher,
           "bytes of all ranks over the longest rank's time in H5Dwrite or H5Dread"},
    Metric{"observed_rate", "B/s", Better::higher,
           "the same bytes over the time from opening to closing the file, less the emulated "
           "computing"},
    Metric{"raw_time", "s", Better::lower, "in H5Dwrite or H5Dread, the longest rank's"},
    Metric{"metadata_time", "s", Better::lower,
           "making or opening groups and datasets, the longest rank's"},
    Metric{"open_time", "s", Better::lower, "of the file, the longest rank's"},
    Metric{"close_time", "s", Better::lower, "of the file, the longest rank's"},
    Metric{"compute_time", "s", Better::none, "emulated"},
    Metric{"observed_time", "s", Better::lower,
           "from opening to closing, less the emulated computing, the longest rank's"},
    Metric{"wrong", "1", Better::lower, "values that were not read as they were written"},
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
