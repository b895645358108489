// The passes of storage.hdf5 over the file: one writes all time steps, one reads and compares them.
#pragma once

#ifdef ASSAY_HDF5
#include "storage/hdf5/library.hpp"
#include "storage/hdf5/particles.hpp"
#include "storage/hdf5/shape.hpp"

namespace assay::storage {

// This rank's times in seconds; hdf5_metrics explains them.
struct PassTimes {
    double open = 0, metadata = 0, raw = 0, close = 0, compute = 0, observed = 0;
};

class Steps {
public:
    Steps(Ranks& ranks, const DatasetShape& shape, std::string file);

    PassTimes write();
    PassTimes read();
    std::uint64_t wrong() const { return wrong_; }  // number of values that were read wrongly

private:
    Handle make_access_properties() const;
    Handle make_transfer_properties() const;
    Handle make_particle_type() const;
    Handle make_file_space() const;
    Handle select_part_of_rank(bool reading) const;
    // The index of the k-th transferred particle in this rank's part.
    std::uint64_t index_of(std::uint64_t k, bool reading) const;

    void fill(std::int64_t step);
    void compare(std::int64_t step);
    PassTimes run_pass(bool reading);
    void transfer_step(hid_t file, std::int64_t step, bool reading, PassTimes& times);
    void transfer_dataset(hid_t dataset, hid_t memory_type, hid_t memory_space, hid_t file_space,
                          hid_t properties, void* data, bool reading, PassTimes& times);

    Ranks& ranks_;
    const DatasetShape& shape_;
    std::string file_;
    std::vector<Particle> particles_;  // if interleaved in memory
    std::vector<std::int32_t>
        arrays_[variables];  // if contiguous: the bits of a float or an integer
    std::uint64_t wrong_ = 0;
};

}  // namespace assay::storage
#endif
