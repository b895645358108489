// The table of the storage benchmarks that need an MPI's own I/O: executables assay-io-<mpi>.
#include <array>

#include "core/registry.hpp"
#include "storage/hdf5/hdf5.hpp"
#include "storage/ior/ior.hpp"
#include "storage/reaction_diffusion/reaction_diffusion.hpp"

namespace assay {
namespace {

constexpr std::array table = {
    storage::ior,
    storage::reaction_diffusion,
    storage::hdf5,
};

}  // namespace

const std::string_view program = "assay-io";

std::span<const Measurement> measurements() { return table; }

}  // namespace assay
