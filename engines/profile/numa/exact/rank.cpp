// Reads the MPI rank of the process. Linked into the runtime of the exact modes and into the plugin
// of QEMU.
#include <stdlib.h>

#include "core/rank_variables.hpp"
#include "profile/numa/exact/runtime.hpp"

namespace assay::numa {

const char* mpi_rank() {
    for (const char* name : rank_variables)
        if (const char* rank = getenv(name); rank != nullptr && *rank != 0) return rank;
    return "";
}

}  // namespace assay::numa
