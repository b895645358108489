// Recognises blocks that runtime libraries keep for themselves until the process ends: the C
// library's stdio buffers, libstdc++'s memory for exceptions, the loader's tables. No program can
// free them, so they are no leaks.
#pragma once

#include <vector>

#include "profile/analyse/allocation_stats.hpp"
#include "profile/analyse/call_tree.hpp"

namespace assay::heap {

// Takes the blocks of runtime pools out of those that were not freed, and adds them up. `stats` has
// finished; its stacks are nodes of `tree`.
std::vector<HeapPool> separate_runtime_pools(const CallTree& tree, AllocationStats& stats);

}  // namespace assay::heap
