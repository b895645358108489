// Environment variables in which launchers of MPI programs tell a process its rank. Without
// dependencies, since code that is loaded into other programs includes it.
#pragma once

#include <array>

namespace assay {

// The first that is set counts.
inline constexpr std::array<const char*, 5> rank_variables = {
    "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MPI_RANK", "SLURM_PROCID"};

}  // namespace assay
