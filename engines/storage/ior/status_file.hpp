// The file in which a stonewalled write leaves how far each rank came, for a read in a later run.
#pragma once

#include "storage/ior/plan.hpp"

namespace assay::storage {

// Collective. `transfers`: of each rank. Ends the job if the file cannot be written.
void store_status(Ranks& ranks, const Plan& plan, const std::vector<std::uint64_t>& transfers);

// Collective: the transfers of each rank, on every rank. Ends the job if the file cannot be read or
// is of another number of ranks.
std::vector<std::uint64_t> load_status(Ranks& ranks, const Plan& plan);

}  // namespace assay::storage
