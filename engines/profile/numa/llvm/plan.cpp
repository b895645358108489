// Groups the memory accesses of a function, and hoists the counting of accesses with constant steps
// out of loops.
#include "profile/numa/llvm/plan.hpp"

#include <llvm/ADT/DenseMap.h>
#include <llvm/Analysis/ScalarEvolutionExpressions.h>
#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/Transforms/Utils/ScalarEvolutionExpander.h>

#include <algorithm>
#include <optional>

namespace assay::numa {
namespace {

using namespace llvm;

// Maximum distance in bytes between the accesses of a group. The runtime counts a group that spans
// two pages, which is slower; with 256 bytes at most 6 % of the groups do.
constexpr std::int64_t max_span = 256;
constexpr std::size_t max_open = 16;  // number of groups that an access is compared with

// Whether a region ends here: after the instruction the rest of the block may not run, or the
// memory may be freed.
bool ends_region(const Instruction& instruction) {
    if (!isGuaranteedToTransferExecutionToSuccessor(&instruction)) return true;
    const auto* call = dyn_cast<CallBase>(&instruction);
    return call != nullptr && !isa<IntrinsicInst>(call) && call->mayWriteToMemory() &&
           !call->hasFnAttr(Attribute::NoFree);
}

bool is_masked(const IntrinsicInst& call) {
    switch (call.getIntrinsicID()) {
        case Intrinsic::masked_load:
        case Intrinsic::masked_store:
        case Intrinsic::masked_gather:
        case Intrinsic::masked_scatter: return true;
        default: return false;
    }
}

std::optional<Access> as_access(Instruction& instruction) {
    Access access{&instruction, nullptr, true};
    if (auto* load = dyn_cast<LoadInst>(&instruction)) {
        access.pointer = load->getPointerOperand();
        access.writes = false;
    } else if (auto* store = dyn_cast<StoreInst>(&instruction)) {
        access.pointer = store->getPointerOperand();
    } else if (auto* read_modify_write = dyn_cast<AtomicRMWInst>(&instruction)) {
        access.pointer = read_modify_write->getPointerOperand();
    } else if (auto* exchange = dyn_cast<AtomicCmpXchgInst>(&instruction)) {
        access.pointer = exchange->getPointerOperand();
    }
    if (access.pointer == nullptr || access.pointer->getType()->getPointerAddressSpace() != 0 ||
        isa<AllocaInst>(getUnderlyingObject(access.pointer)))
        return std::nullopt;
    return access;
}

class Planner {
public:
    Planner(LoopInfo& loops, const DominatorTree& tree, ScalarEvolution& evolution)
        : loops_(loops), tree_(tree), evolution_(evolution) {}

    Plan plan(Function& function);

private:
    // The trip count of the loop; null if its accesses must be counted one by one.
    const SCEV* trip_count_of(Loop& loop);
    bool hoist(const Access& access);
    void add(const Access& access, Group group_template);

    LoopInfo& loops_;
    const DominatorTree& tree_;
    ScalarEvolution& evolution_;
    Plan plan_;
    DenseMap<Loop*, const SCEV*> trip_counts_;
};

const SCEV* Planner::trip_count_of(Loop& loop) {
    const auto [entry, is_new] = trip_counts_.try_emplace(&loop, nullptr);
    if (!is_new) return entry->second;
    const BasicBlock *preheader = loop.getLoopPreheader(), *latch = loop.getLoopLatch();
    if (preheader == nullptr || latch == nullptr || loop.getUniqueExitBlock() == nullptr ||
        !loop.hasDedicatedExits() || loop.getExitingBlock() != latch ||
        !evolution_.hasLoopInvariantBackedgeTakenCount(&loop))
        return nullptr;
    const SCEV* backedge_count = evolution_.getBackedgeTakenCount(&loop);
    if (!isSafeToExpandAt(backedge_count, preheader->getTerminator(), evolution_)) return nullptr;
    for (const BasicBlock* block : loop.blocks())
        if (std::any_of(block->begin(), block->end(), ends_region)) return nullptr;
    Type* i64 = Type::getInt64Ty(preheader->getContext());
    return trip_counts_[&loop] = evolution_.getAddExpr(
               evolution_.getTruncateOrZeroExtend(backedge_count, i64), evolution_.getOne(i64));
}

// Adds the access to one of the latest groups if it is close enough, or to a new group.
void Planner::add(const Access& access, Group group_template) {
    std::vector<Group>& groups = plan_.groups;
    const std::size_t first_open = groups.size() > max_open ? groups.size() - max_open : 0;
    for (std::size_t k = groups.size(); k-- > first_open;) {
        Group& group = groups[k];
        if (group.region != group_template.region || group.step != group_template.step) continue;
        const auto* distance =
            dyn_cast<SCEVConstant>(evolution_.getMinusSCEV(group_template.start, group.start));
        if (distance == nullptr || distance->getAPInt().getMinSignedBits() > 32) continue;
        const std::int64_t offset = distance->getAPInt().getSExtValue();
        std::int64_t low = offset, high = offset;
        for (const Access& other : group.accesses) {
            low = std::min(low, other.offset);
            high = std::max(high, other.offset);
        }
        if (high - low > max_span) continue;
        group.accesses.push_back(access);
        group.accesses.back().offset = offset;
        return;
    }
    group_template.accesses.push_back(access);
    groups.push_back(std::move(group_template));
}

// Plans the counting before the loop if the addresses are start + k * step. The order of accesses
// within the loop is lost, which matters only to the first touch of a page.
bool Planner::hoist(const Access& access) {
    BasicBlock* block = access.instruction->getParent();
    Loop* loop = loops_.getLoopFor(block);
    const SCEV* trip_count = loop != nullptr ? trip_count_of(*loop) : nullptr;
    if (trip_count == nullptr || !tree_.dominates(block, loop->getLoopLatch())) return false;
    const SCEV* address = evolution_.getSCEV(access.pointer);
    const SCEV *start = address, *step = evolution_.getZero(Type::getInt64Ty(block->getContext()));
    if (const auto* recurrence = dyn_cast<SCEVAddRecExpr>(address)) {
        if (recurrence->getLoop() != loop || !recurrence->isAffine()) return false;
        start = recurrence->getStart();
        step = recurrence->getStepRecurrence(evolution_);
    } else if (!evolution_.isLoopInvariant(address, loop)) {
        return false;
    }
    Instruction* insertion_point = loop->getLoopPreheader()->getTerminator();
    if (!evolution_.isLoopInvariant(step, loop) ||
        !isSafeToExpandAt(start, insertion_point, evolution_) ||
        !isSafeToExpandAt(step, insertion_point, evolution_))
        return false;
    add(access, {{}, insertion_point, insertion_point, start, step, trip_count});
    return true;
}

// The region in which the block ends.
const void* last_region(const BasicBlock& block) {
    for (const Instruction& instruction : reverse(block))
        if (ends_region(instruction)) return &instruction;
    return &block;
}

Plan Planner::plan(Function& function) {
    for (BasicBlock& block : function) {
        const void* region = &block;
        if (const BasicBlock* previous = block.getSinglePredecessor();
            previous != nullptr && loops_.getLoopFor(previous) == loops_.getLoopFor(&block))
            plan_.previous_regions[region] = last_region(*previous);
        for (Instruction& instruction : block) {
            if (auto* call = dyn_cast<IntrinsicInst>(&instruction))
                if (isa<MemIntrinsic>(call) || is_masked(*call)) plan_.intrinsics.push_back(call);
            const auto access = as_access(instruction);
            if (access && !hoist(*access))
                add(*access, {{}, &instruction, region, evolution_.getSCEV(access->pointer)});
            if (ends_region(instruction)) region = &instruction;
        }
    }
    return std::move(plan_);
}

}  // namespace

Plan plan(Function& function, LoopInfo& loops, const DominatorTree& tree,
          ScalarEvolution& evolution) {
    return Planner(loops, tree, evolution).plan(function);
}

}  // namespace assay::numa
