// Applies NUMA placements to blocks by their allocating call, without a change of the source.
//
// A plan is a file of lines "OFFSET ACTION NODES MODULE": the offset of the allocating call in the
// module (hexadecimal, within the call instruction), what to do (interleave, bind, spread), nodes
// with commas between them, and the module's path. `spread` gives each of the nodes listed an
// equal, contiguous part of the block, as a parallel first touch does; `bind` places all pages on
// the first node.
#pragma once

#include <cstddef>

#include "profile/stack/tree.hpp"

namespace assay::numa {

// Reads the plan that the environment names, if any.
void read_plan();

// Places the whole pages of a new block if its stack is in the plan.
void apply_plan(const void* block, std::size_t bytes, stack::StackId stack);

}  // namespace assay::numa
