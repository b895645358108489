// Transfers the time steps of storage.hdf5 between the ranks' arrays and the HDF5 file, and times
// the parts.
#include "storage/hdf5/steps.hpp"
#ifdef ASSAY_HDF5

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <thread>

namespace assay::storage {
namespace {

// Calls `work` and adds its duration in seconds to `sum`.
template <class Work>
auto timed(double& sum, Work work) {
    const Nanoseconds begin = now();
    const struct Add {
        double& sum;
        Nanoseconds begin;
        ~Add() { sum += seconds(now() - begin); }
    } add{sum, begin};
    return work();
}

// The bits of a value in memory: of an integer, or of a float.
std::int32_t bits_in_memory(std::int32_t number, int variable) {
    return variable == integer_variable ? number
                                        : std::bit_cast<std::int32_t>(static_cast<float>(number));
}

// The bits of a variable of a particle.
std::int32_t& variable_of(Particle& particle, int variable) {
    return reinterpret_cast<std::int32_t*>(&particle)[variable];
}

hid_t type_of(int variable) {
    return variable == integer_variable ? H5T_NATIVE_INT32 : H5T_NATIVE_FLOAT;
}

}  // namespace

Steps::Steps(Ranks& ranks, const DatasetShape& shape, std::string file)
    : ranks_(ranks), shape_(shape), file_(std::move(file)) {
    if (shape.memory == Pattern::interleaved) particles_.resize(shape.particles());
    else
        for (auto& array : arrays_) array.resize(shape.particles());
}

Handle Steps::make_access_properties() const {
    Handle list(ranks_, H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "make a property list");
    require(ranks_, H5Pset_fapl_mpio(list, MPI_COMM_WORLD, MPI_INFO_NULL),
            "take MPI-IO as its driver");
    if (shape_.collective_metadata) {
        require(ranks_, H5Pset_all_coll_metadata_ops(list, true), "read metadata collectively");
        require(ranks_, H5Pset_coll_metadata_write(list, true), "write metadata collectively");
    }
    return list;
}

Handle Steps::make_transfer_properties() const {
    Handle list(ranks_, H5Pcreate(H5P_DATASET_XFER), H5Pclose, "make a property list");
    H5Pset_dxpl_mpio(list, shape_.collective_data ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT);
    return list;
}

Handle Steps::make_particle_type() const {
    Handle type(ranks_, H5Tcreate(H5T_COMPOUND, sizeof(Particle)), H5Tclose, "make a type");
    for (int variable = 0; variable < variables; ++variable)
        H5Tinsert(type, variable_names[variable],
                  static_cast<std::size_t>(variable) * sizeof(float), type_of(variable));
    return type;
}

Handle Steps::make_file_space() const {
    const auto ranks = static_cast<hsize_t>(ranks_.size());
    const hsize_t all[] = {shape_.extent[0] * ranks, shape_.extent[1], shape_.extent[2]};
    return {ranks_, H5Screate_simple(shape_.dims, all, nullptr), H5Sclose, "make a data space"};
}

// The file's data space with this rank's particles selected.
Handle Steps::select_part_of_rank(bool reading) const {
    Handle space = make_file_space();
    const hsize_t start[] = {shape_.extent[0] * static_cast<hsize_t>(ranks_.rank()), 0, 0};
    if (reading && shape_.read == ReadOption::strided) {
        const hsize_t stride[] = {shape_.stride}, count[] = {shape_.extent[0] / shape_.stride},
                      block[] = {shape_.block};
        H5Sselect_hyperslab(space, H5S_SELECT_SET, start, stride, count, block);
        return space;
    }
    const std::uint64_t particles =
        reading ? shape_.particles_read(ranks_.size()) : shape_.particles();
    const hsize_t count[] = {particles / (shape_.extent[1] * shape_.extent[2]), shape_.extent[1],
                             shape_.extent[2]};
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, nullptr, count, nullptr);
    return space;
}

std::uint64_t Steps::index_of(std::uint64_t k, bool reading) const {
    return reading && shape_.read == ReadOption::strided
               ? k / shape_.block * shape_.stride + k % shape_.block
               : k;
}

void Steps::fill(std::int64_t step) {
    for (std::uint64_t k = 0; k < shape_.particles(); ++k)
        for (int variable = 0; variable < variables; ++variable) {
            const std::int32_t stored =
                bits_in_memory(expected_value(step, ranks_.rank(), k, variable), variable);
            (shape_.memory == Pattern::interleaved ? variable_of(particles_[k], variable)
                                                   : arrays_[variable][k]) = stored;
        }
}

void Steps::compare(std::int64_t step) {
    const std::uint64_t particles = shape_.particles_read(ranks_.size());
    for (std::uint64_t k = 0; k < particles; ++k)
        for (int variable = 0; variable < variables; ++variable) {
            std::int32_t& stored = shape_.memory == Pattern::interleaved
                                       ? variable_of(particles_[k], variable)
                                       : arrays_[variable][k];
            wrong_ += stored != bits_in_memory(expected_value(step, ranks_.rank(),
                                                              index_of(k, true), variable),
                                               variable);
            stored = -1;  // no valid value, so a step that is not read is found
        }
}

void Steps::transfer_dataset(hid_t dataset, hid_t memory_type, hid_t memory_space, hid_t file_space,
                             hid_t properties, void* data, bool reading, PassTimes& times) {
    const herr_t status = timed(times.raw, [&] {
        return ranks_.guarded(reading ? "reads a dataset" : "writes a dataset", [&] {
            return reading
                       ? H5Dread(dataset, memory_type, memory_space, file_space, properties, data)
                       : H5Dwrite(dataset, memory_type, memory_space, file_space, properties, data);
        });
    });
    require(ranks_, status, reading ? "read a dataset" : "write a dataset");
}

// Handles every combination of contiguous and interleaved, in memory and in the file. HDF5 itself
// gathers and scatters the members of a compound type.
void Steps::transfer_step(hid_t file, std::int64_t step, bool reading, PassTimes& times) {
    const Handle properties = make_transfer_properties(), in_file = select_part_of_rank(reading),
                 particle = make_particle_type();
    const hsize_t particles = reading ? shape_.particles_read(ranks_.size()) : shape_.particles();
    const Handle in_memory(ranks_, H5Screate_simple(1, &particles, nullptr), H5Sclose,
                           "make a data space");
    const std::string name = fmt::format("Timestep_{}", step);
    const Handle group = timed(times.metadata, [&] {
        return Handle(ranks_,
                      reading
                          ? H5Gopen2(file, name.c_str(), H5P_DEFAULT)
                          : H5Gcreate2(file, name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                      H5Gclose, reading ? "open a group" : "make a group");
    });
    const auto dataset = [&](const char* dataset_name, hid_t type) {
        return timed(times.metadata, [&] {
            return Handle(ranks_,
                          reading ? H5Dopen2(group, dataset_name, H5P_DEFAULT)
                                  : H5Dcreate2(group, dataset_name, type, make_file_space(),
                                               H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                          H5Dclose, reading ? "open a dataset" : "make a dataset");
        });
    };
    if (shape_.file == Pattern::interleaved) {
        const Handle all = dataset("particles", particle);
        if (shape_.memory == Pattern::interleaved) {
            transfer_dataset(all, particle, in_memory, in_file, properties, particles_.data(),
                             reading, times);
            return;
        }
        for (int variable = 0; variable < variables; ++variable) {  // one member of each particle
            const Handle member(ranks_, H5Tcreate(H5T_COMPOUND, sizeof(float)), H5Tclose,
                                "make a type");
            H5Tinsert(member, variable_names[variable], 0, type_of(variable));
            transfer_dataset(all, member, in_memory, in_file, properties, arrays_[variable].data(),
                             reading, times);
        }
        return;
    }
    for (int variable = 0; variable < variables; ++variable) {
        const Handle variable_dataset = dataset(variable_names[variable], type_of(variable));
        if (shape_.memory == Pattern::contiguous) {
            transfer_dataset(variable_dataset, type_of(variable), in_memory, in_file, properties,
                             arrays_[variable].data(), reading, times);
            continue;
        }
        const hsize_t extent = particles * variables, start = static_cast<hsize_t>(variable),
                      stride = variables;
        const Handle strided(ranks_, H5Screate_simple(1, &extent, nullptr), H5Sclose,
                             "make a data space");
        H5Sselect_hyperslab(strided, H5S_SELECT_SET, &start, &stride, &particles, nullptr);
        transfer_dataset(variable_dataset, type_of(variable), strided, in_file, properties,
                         particles_.data(), reading, times);
    }
}

PassTimes Steps::run_pass(bool reading) {
    PassTimes times;
    const Handle list = make_access_properties();
    double untimed = 0;  // filling and comparing
    ranks_.barrier();
    const Nanoseconds begin = now();
    Handle file = timed(times.open, [&] {
        return ranks_.guarded("opens a file", [&] {
            return Handle(ranks_,
                          reading ? H5Fopen(file_.c_str(), H5F_ACC_RDONLY, list)
                                  : H5Fcreate(file_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, list),
                          H5Fclose, "open the file");
        });
    });
    for (std::int64_t step = 0; step < shape_.timesteps; ++step) {
        if (!reading) timed(untimed, [&] { fill(step); });
        transfer_step(file, step, reading, times);
        if (reading) timed(untimed, [&] { compare(step); });
        if (shape_.compute_s > 0)
            timed(times.compute, [&] {
                std::this_thread::sleep_for(std::chrono::duration<double>(shape_.compute_s));
            });
        const double done = static_cast<double>(step + 1) / static_cast<double>(shape_.timesteps);
        ranks_.progress((done + (reading ? 1 : 0)) / 2,
                        fmt::format("{} step {}", reading ? "read" : "written", step));
    }
    timed(times.close, [&] { ranks_.guarded("closes a file", [&] { file.close(); }); });
    times.observed = seconds(now() - begin) - times.compute - untimed;
    return times;
}

PassTimes Steps::write() { return run_pass(false); }

PassTimes Steps::read() {
    for (auto& array : arrays_) std::ranges::fill(array, -1);
    for (Particle& particle : particles_)
        for (int variable = 0; variable < variables; ++variable)
            variable_of(particle, variable) = -1;
    return run_pass(true);
}

}  // namespace assay::storage
#endif
