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

// Bytes between accesses that are counted together. A group that spans two pages is counted
// slowly; with 256 bytes that is 6 % of them at most.
constexpr std::int64_t max_span = 256;
constexpr std::size_t max_open = 16;  // groups that a further access is compared with

// After such an instruction the rest of the block may not run, or the memory may be another's.
bool is_border(const Instruction& instruction) {
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

std::optional<Access> access_of(Instruction& instruction) {
    Access access{&instruction, nullptr, true};
    if (auto* load = dyn_cast<LoadInst>(&instruction)) {
        access.pointer = load->getPointerOperand();
        access.writes = false;
    } else if (auto* store = dyn_cast<StoreInst>(&instruction)) {
        access.pointer = store->getPointerOperand();
    } else if (auto* change = dyn_cast<AtomicRMWInst>(&instruction)) {
        access.pointer = change->getPointerOperand();
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
    // How often the loop's blocks run; null where its accesses are counted one by one.
    const SCEV* trip_count_of(Loop& loop);
    bool hoist(const Access& access);
    void add(const Access& access, Group wanted);

    LoopInfo& loops_;
    const DominatorTree& tree_;
    ScalarEvolution& evolution_;
    Plan plan_;
    DenseMap<Loop*, const SCEV*> trip_counts_;
};

const SCEV* Planner::trip_count_of(Loop& loop) {
    const auto [known, is_new] = trip_counts_.try_emplace(&loop, nullptr);
    if (!is_new) return known->second;
    const BasicBlock *before = loop.getLoopPreheader(), *latch = loop.getLoopLatch();
    if (before == nullptr || latch == nullptr || loop.getUniqueExitBlock() == nullptr ||
        !loop.hasDedicatedExits() || loop.getExitingBlock() != latch ||
        !evolution_.hasLoopInvariantBackedgeTakenCount(&loop))
        return nullptr;
    const SCEV* taken = evolution_.getBackedgeTakenCount(&loop);
    if (!isSafeToExpandAt(taken, before->getTerminator(), evolution_)) return nullptr;
    for (const BasicBlock* block : loop.blocks())
        if (std::any_of(block->begin(), block->end(), is_border)) return nullptr;
    Type* i64 = Type::getInt64Ty(before->getContext());
    return trip_counts_[&loop] = evolution_.getAddExpr(
               evolution_.getTruncateOrZeroExtend(taken, i64), evolution_.getOne(i64));
}

// Adds the access to an open group that fits, or opens one.
void Planner::add(const Access& access, Group wanted) {
    std::vector<Group>& groups = plan_.groups;
    const std::size_t first_open = groups.size() > max_open ? groups.size() - max_open : 0;
    for (std::size_t k = groups.size(); k-- > first_open;) {
        Group& group = groups[k];
        if (group.region != wanted.region || group.step != wanted.step) continue;
        const auto* apart =
            dyn_cast<SCEVConstant>(evolution_.getMinusSCEV(wanted.start, group.start));
        if (apart == nullptr || apart->getAPInt().getMinSignedBits() > 32) continue;
        const std::int64_t offset = apart->getAPInt().getSExtValue();
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
    wanted.accesses.push_back(access);
    groups.push_back(std::move(wanted));
}

// Plans the access before its loop, if its addresses are start + k * step there. The order within
// the loop is then not kept, which matters only to the first touch of a page.
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

Plan Planner::plan(Function& function) {
    for (BasicBlock& block : function) {
        const void* region = &block;
        for (Instruction& instruction : block) {
            if (auto* call = dyn_cast<IntrinsicInst>(&instruction))
                if (isa<MemIntrinsic>(call) || is_masked(*call)) plan_.intrinsics.push_back(call);
            const auto access = access_of(instruction);
            if (access && !hoist(*access))
                add(*access, {{}, &instruction, region, evolution_.getSCEV(access->pointer)});
            if (is_border(instruction)) region = &instruction;
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
