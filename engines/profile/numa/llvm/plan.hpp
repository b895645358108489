// Plans the counting of a function's memory accesses: where the counting code goes, and which
// accesses it counts together.
#pragma once

#include <llvm/ADT/DenseMap.h>
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/Analysis/ScalarEvolution.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace assay::numa {

struct Access {
    llvm::Instruction* instruction;
    llvm::Value* pointer;
    bool writes;
    std::int64_t offset = 0;  // from the first access of its group
};

// Accesses at constant distances from each other, which are counted together. Those of a loop
// repeat `trip_count` times, `step` bytes further each time.
struct Group {
    std::vector<Access> accesses;
    llvm::Instruction* insertion_point;  // of the code that counts them
    const void* region;  // groups of a region have no call, jump or label between them
    const llvm::SCEV* start = nullptr;  // the first access's address
    const llvm::SCEV *step = nullptr, *trip_count = nullptr;
};

struct Plan {
    std::vector<Group> groups;
    // memset() and the like, and masked vector accesses: each is counted separately.
    std::vector<llvm::IntrinsicInst*> intrinsics;
    // The region that always ran just before a region, with no call between them, in the same round
    // of their loop.
    llvm::DenseMap<const void*, const void*> previous_regions;
};

Plan plan(llvm::Function& function, llvm::LoopInfo& loops, const llvm::DominatorTree& tree,
          llvm::ScalarEvolution& evolution);

}  // namespace assay::numa
