// The communication epoch: a counter of the MPI calls by which this process may have received
// something.
//
// A read must return the data of writes that happened before it, and a write on another node
// happens before it only if messages connect the two. So a process asks other nodes for their
// writes only if the epoch has changed since it last asked: a loop of reads asks once.
#pragma once

#include <cstdint>

namespace assay::storage {

// The present epoch. It grows with every MPI call that can receive and, after
// assume_communication(), with every call of this function.
std::uint64_t comm_epoch();
// Call it after this library itself has communicated.
void advance_comm_epoch();
// The program's MPI calls cannot be intercepted, so communication is assumed at any time.
void assume_communication();

}  // namespace assay::storage
