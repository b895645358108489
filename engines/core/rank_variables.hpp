// Environment variables in which launchers of MPI programs tell a process its rank. This file has
// no dependencies, because code that is loaded into other programs includes it.
#pragma once

#include <array>

namespace assay {

// In the order in which they are tried: the first that is set is used.
inline constexpr std::array<const char*, 5> rank_variables = {
    "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MPI_RANK", "SLURM_PROCID"};

}  // namespace assay
