// The status file of IOR's stonewall: the number of transfers that each rank has written before the
// time was over. A read in a later run reads only these.
#pragma once

#include "storage/ior/plan.hpp"

namespace assay::storage {

// Collective. `transfers`: of each rank. Ends the job if the file cannot be written.
void store_status(Ranks& ranks, const Plan& plan, const std::vector<std::uint64_t>& transfers);

// Collective: the transfers of each rank, on every rank. Ends the job if the file cannot be read or
// is of another number of ranks.
std::vector<std::uint64_t> load_status(Ranks& ranks, const Plan& plan);

}  // namespace assay::storage
