// The communication epoch: a counter of the MPI calls by which this process may have received
// something.
//
// A read must return what was written before it, and a process learns what happened before only by
// communication. So it asks other nodes for their writes only if the epoch has changed since it
// last asked; a loop of reads asks once.
#pragma once

#include <cstdint>

namespace assay::storage {

// Grows with every MPI call that can receive; with every call of this function after
// assume_communication().
std::uint64_t comm_epoch();
// This library itself has communicated.
void advance_comm_epoch();
// The program's MPI calls cannot be intercepted, so communication is assumed at any time.
void assume_communication();

}  // namespace assay::storage
