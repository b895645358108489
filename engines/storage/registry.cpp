// The main program of assay-io-bench-<mpi>, and the table of its measurements: benchmarks that call
// MPI-IO directly.
#include <array>

#include "core/registry.hpp"
#include "probe/engine_main.hpp"
#include "storage/hdf5/hdf5.hpp"
#include "storage/ior/ior.hpp"
#include "storage/metadata/metadata.hpp"
#include "storage/reaction_diffusion/reaction_diffusion.hpp"

namespace {

using namespace assay;

constexpr std::array table = {
    storage::ior,
    storage::reaction_diffusion,
    storage::hdf5,
    storage::metadata,
};

}  // namespace

int main(int argc, char** argv) { return engine_main("assay-io-bench", table, argc, argv); }
