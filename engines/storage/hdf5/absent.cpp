// storage.hdf5 in a build without parallel HDF5 for this MPI: the measurement is waived, with the
// reason. With HDF5, hdf5.cpp takes the place of this file.
#ifndef ASSAY_HDF5
#include "core/error.hpp"
#include "storage/hdf5/hdf5.hpp"

namespace assay::storage::detail {

std::optional<std::string> hdf5_waived() {
    return "no parallel HDF5 of this MPI was found when the engines were built (Debian: "
           "libhdf5-openmpi-dev, libhdf5-mpich-dev)";
}

void run_hdf5(const Options&, Bench&) { throw Error(*hdf5_waived()); }

}  // namespace assay::storage::detail
#endif
