// Applies placements to blocks by the place that allocates them, without a change of source.
//
// A plan is a file of lines "OFFSET ACTION NODE MODULE": the offset of the allocating call's return
// address in the module (hexadecimal), what to do (interleave, bind, spread), the node of `bind`,
// and the module's path. `spread` gives each node an equal, contiguous part, as a parallel first
// touch of a static schedule does.
#pragma once

#include <cstddef>

#include "profile/stack/tree.hpp"

namespace assay::numa {

// Reads the plan that the environment names, if any.
void read_plan();

// Places the whole pages of a new block if its stack is in the plan.
void apply_plan(const void* block, std::size_t bytes, stack::StackId stack);

}  // namespace assay::numa
