// The table of the storage benchmarks that need an MPI's own I/O: executables assay-io-<mpi>.
#include <array>

#include "core/registry.hpp"
#include "probe/engine_main.hpp"
#include "storage/hdf5/hdf5.hpp"
#include "storage/ior/ior.hpp"
#include "storage/reaction_diffusion/reaction_diffusion.hpp"

namespace {

using namespace assay;

constexpr std::array table = {
    storage::ior,
    storage::reaction_diffusion,
    storage::hdf5,
};

}  // namespace

int main(int argc, char** argv) { return engine_main("assay-io", table, argc, argv); }
