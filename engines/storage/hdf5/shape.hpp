// The shape of the datasets of storage.hdf5, and how they are read. The parts of the ranks follow
// each other along the first dimension.
#pragma once

#include <cstdint>
#include <string>

#include "core/options.hpp"

namespace assay::storage {

// contiguous: an array (or dataset) for each variable; interleaved: one of particles.
enum class Pattern { contiguous, interleaved };
// Which part of a rank's particles is read: all, the beginning, or blocks at a stride.
enum class ReadOption { full, partial, strided };

struct DatasetShape {
    int dims;
    std::uint64_t extent[3];  // of one rank
    std::int64_t timesteps;
    Pattern memory, file;
    ReadOption read;
    // Numbers of particles: for ReadOption::partial those of all ranks (0: half), for `strided` the
    // distance and the length of blocks.
    std::uint64_t to_read, stride, block;
    bool collective_data, collective_metadata;
    double compute_s;  // emulated computation after each time step

    std::uint64_t particles() const { return extent[0] * extent[1] * extent[2]; }  // of one rank
    std::uint64_t particles_read(int ranks) const;  // of one rank, in one step
};

// Throws Error for options that contradict each other.
DatasetShape read_shape(const Options& options);

}  // namespace assay::storage
