// Whether this process can have heard of another's writes: the number of times that it has received
// anything by MPI.
//
// A read must see what was written before it, and "before" comes to a process by communication
// alone. So what other nodes have written needs to be asked for only after some, and a loop of
// reads asks once.
#pragma once

#include <cstdint>

namespace assay::storage {

// Grows with every call of MPI that can end with something received; with every call of this, where
// those cannot be seen.
std::uint64_t heard();
// Something was heard in another way.
void hear();
// The program's communication does not pass here: it is to be assumed at any time.
void always_heard();

}  // namespace assay::storage
