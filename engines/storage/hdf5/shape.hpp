// The shape of a dataset: the parts of the ranks follow each other along the first dimension.
#pragma once

#include <cstdint>
#include <string>

#include "core/options.hpp"

namespace assay::storage {

enum class Pattern { contiguous, interleaved };
enum class ReadOption { full, partial, strided };

struct DatasetShape {
    int dims;
    std::uint64_t extent[3];  // of one rank
    std::int64_t timesteps;
    Pattern memory, file;
    ReadOption read;
    std::uint64_t to_read, stride, block;
    bool collective_data, collective_metadata;
    double compute_s;

    std::uint64_t particles() const { return extent[0] * extent[1] * extent[2]; }  // of one rank
    std::uint64_t particles_read(int ranks) const;  // of one rank, in one step
};

// Throws Error for options that contradict each other.
DatasetShape read_shape(const Options& options);

}  // namespace assay::storage
