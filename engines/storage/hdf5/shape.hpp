// The shape of the datasets of storage.hdf5, and which part of them is read. The first dimension is
// divided among the ranks: each rank has one contiguous part.
#pragma once

#include <cstdint>
#include <string>

#include "core/options.hpp"

namespace assay::storage {

// The layout of particles in memory and in the file. contiguous: one array (in the file: one
// dataset) for each variable; interleaved: one array or dataset of structs, each a particle.
enum class Pattern { contiguous, interleaved };
// Which part of a rank's particles is read: all, the beginning, or blocks at a stride.
enum class ReadOption { full, partial, strided };

struct DatasetShape {
    int dims;
    std::uint64_t extent[3];  // of one rank
    std::int64_t timesteps;
    Pattern memory, file;
    ReadOption read;
    std::uint64_t to_read;  // for ReadOption::partial: particles of all ranks; 0: half of them
    std::uint64_t stride,
        block;  // for ReadOption::strided: distance and length of blocks, in particles
    bool collective_data, collective_metadata;
    double compute_s;  // emulated computation after each time step

    std::uint64_t particles() const { return extent[0] * extent[1] * extent[2]; }  // of one rank
    std::uint64_t particles_read(int ranks) const;  // of one rank, in one step
};

// Throws Error for options that contradict each other.
DatasetShape read_shape(const Options& options);

}  // namespace assay::storage
