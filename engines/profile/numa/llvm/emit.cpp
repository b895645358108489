#include "profile/numa/llvm/emit.hpp"

#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>

#include <algorithm>
#include <map>

#include "profile/numa/exact/layout.hpp"

namespace assay::numa {

using namespace llvm;

Emitter::Emitter(Function& function, Sites& sites)
    : function_(function),
      module_(*function.getParent()),
      all_sites_(sites),
      i8_(Type::getInt8Ty(function.getContext())),
      i32_(Type::getInt32Ty(function.getContext())),
      i64_(Type::getInt64Ty(function.getContext())),
      bytes_(Type::getInt8PtrTy(function.getContext())) {
    Type* nothing = Type::getVoidTy(function.getContext());
    thread_ = module_.getOrInsertFunction("__assay_numa_thread", bytes_);
    count_ =
        module_.getOrInsertFunction("__assay_numa_count", nothing, bytes_, i64_, i64_, i32_, i32_);
    range_ = module_.getOrInsertFunction("__assay_numa_range", nothing, bytes_, i64_, i64_, i64_,
                                         i32_, i32_);
    for (FunctionCallee callee : {thread_, count_, range_})
        if (auto* called = dyn_cast<Function>(callee.getCallee())) {
            called->setDoesNotThrow();
            called->addFnAttr(Attribute::Cold);
        }
}

void Emitter::emit(const Plan& plan, ScalarEvolution& evolution) {
    if (plan.groups.empty() && plan.intrinsics.empty()) return;
    // First all addresses, since counting splits the blocks that the analyses know.
    SCEVExpander expander(evolution, module_.getDataLayout(), "assay");
    std::vector<Counted> all;
    all.reserve(plan.groups.size());
    for (const Group& group : plan.groups) all.push_back(expand(group, expander));
    enter();
    for (const Counted& counted : all) count(counted);
    for (IntrinsicInst* call : plan.intrinsics) {
        if (auto* bytes = dyn_cast<MemIntrinsic>(call)) count_bytes(*bytes);
        else count_masked(*call);
    }
}

Emitter::Counted Emitter::expand(const Group& group, SCEVExpander& expander) {
    Counted counted{&group, group.accesses[0].pointer, nullptr, nullptr, spots_of(group)};
    if (group.trip_count != nullptr) {
        counted.first = expander.expandCodeFor(group.start, bytes_, group.insertion_point);
        counted.step = expander.expandCodeFor(group.step, i64_, group.insertion_point);
        counted.trip_count = expander.expandCodeFor(group.trip_count, i64_, group.insertion_point);
    }
    return counted;
}

// Accesses of a group from equal places share a site. Groups share none: a counter that grows at
// each access would make them wait for each other.
std::vector<Emitter::Spot> Emitter::spots_of(const Group& group) {
    std::map<std::int64_t, std::vector<Constant*>> places;
    std::map<std::int64_t, bool> writes;
    for (const Access& access : group.accesses) {
        places[access.offset].push_back(all_sites_.place(*access.instruction, access.writes));
        writes[access.offset] |= access.writes;
    }
    std::map<std::vector<Constant*>, unsigned> numbers;
    std::vector<Spot> spots;
    for (const auto& [offset, all] : places) {
        const auto [known, is_new] = numbers.try_emplace(all, 0);
        if (is_new) known->second = all_sites_.add(all);
        spots.push_back({offset, known->second, static_cast<unsigned>(all.size()), writes[offset]});
    }
    return spots;
}

Emitter::Spot Emitter::single(const Instruction& access, bool writes) {
    return {0, all_sites_.add(all_sites_.place(access, writes)), 1, writes};
}

// The thread's counters, found once at the function's beginning.
void Emitter::enter() {
    auto* own = cast<GlobalVariable>(module_.getOrInsertGlobal("__assay_numa_own", bytes_));
    own->setThreadLocalMode(GlobalValue::InitialExecTLSModel);
    BasicBlock& entry = function_.getEntryBlock();
    std::vector<AllocaInst*> variables;
    for (Instruction& instruction : entry)
        if (auto* variable = dyn_cast<AllocaInst>(&instruction);
            variable && variable->isStaticAlloca())
            variables.push_back(variable);
    for (AllocaInst* variable : reverse(variables)) variable->moveBefore(&entry.front());
    auto place = entry.begin();
    while (isa<AllocaInst>(*place)) ++place;
    Instruction* first = &*place;

    IRBuilder<> builder(first);
    Value* known = builder.CreateLoad(bytes_, own);
    Instruction* missing = SplitBlockAndInsertIfThen(
        builder.CreateIsNull(known), first, false,
        MDBuilder(function_.getContext()).createBranchWeights(1, 1 << 20));
    BasicBlock* before = missing->getParent()->getSinglePredecessor();
    Value* made = IRBuilder<>(missing).CreateCall(thread_, {});
    builder.SetInsertPoint(first);
    PHINode* found = builder.CreatePHI(bytes_, 2);
    found->addIncoming(known, before);
    found->addIncoming(made, missing->getParent());
    own_ = found;
    Value* base = builder.CreateZExt(builder.CreateLoad(i32_, all_sites_.base()), i64_);
    sites_ = builder.CreateGEP(i8_, own_, builder.CreateMul(base, number(site_counters * 8)));
    LoadInst* processor = builder.CreateLoad(
        i32_->getPointerTo(), builder.CreateBitCast(own_, i32_->getPointerTo()->getPointerTo()));
    processor->setMetadata(LLVMContext::MD_invariant_load, MDNode::get(function_.getContext(), {}));
    processor_ = processor;
}

// The node of the processor that the thread is on: read once between two calls or jumps.
Value* Emitter::node(const Group& group, IRBuilder<>& builder) {
    Value*& known = nodes_[group.region];
    if (known != nullptr) return known;
    Value* processor = builder.CreateAnd(builder.CreateLoad(i32_, processor_, true),
                                         ConstantInt::get(i32_, max_processors - 1));
    Value* place = builder.CreateGEP(
        i8_, own_, builder.CreateAdd(builder.CreateZExt(processor, i64_), number(nodes_at)));
    return known = builder.CreateZExt(builder.CreateLoad(i8_, place), i64_);
}

Value* Emitter::after(IRBuilder<>& builder, Value* address, std::int64_t offset) {
    return builder.CreateAdd(address, number(static_cast<std::uint64_t>(offset)));
}

// Inline code counts a group that lies in one page, which was met before.
Emitter::Hot Emitter::look_up(IRBuilder<>& builder, const Counted& counted) {
    const std::int64_t lowest = counted.spots.front().offset, highest = counted.spots.back().offset;
    Value* first = builder.CreatePtrToInt(counted.first, i64_);
    Value* low = after(builder, first, lowest);
    Value* shadow = builder.CreateIntToPtr(number(shadow_address), i32_->getPointerTo());
    Value* value = builder.CreateLoad(
        i32_, builder.CreateGEP(i32_, shadow, builder.CreateLShr(low, page_bits)));
    Value* fits = builder.CreateICmpNE(value, ConstantInt::get(i32_, 0));
    Value* apart = nullptr;  // the bits in which the addresses differ
    const auto compare = [&](Value* other) {
        Value* bits = builder.CreateXor(low, other);
        apart = apart == nullptr ? bits : builder.CreateOr(apart, bits);
    };
    if (highest != lowest) compare(after(builder, first, highest));
    if (counted.trip_count != nullptr) {
        Value* last = builder.CreateAdd(
            first,
            builder.CreateMul(counted.step, builder.CreateSub(counted.trip_count, number(1))));
        compare(after(builder, last, lowest));
        if (highest != lowest) compare(after(builder, last, highest));
    }
    if (apart != nullptr)
        fits = builder.CreateAnd(fits, builder.CreateICmpULT(apart, number(page_bytes)));
    return {fits, builder.CreateZExt(value, i64_)};
}

void Emitter::grow(IRBuilder<>& builder, Value* table, std::uint64_t offset, Value* index,
                   Value* by) {
    Value* counters =
        builder.CreateBitCast(builder.CreateGEP(i8_, table, number(offset)), i64_->getPointerTo());
    Value* counter = builder.CreateGEP(i64_, counters, index);
    builder.CreateStore(builder.CreateAdd(builder.CreateLoad(i64_, counter), by), counter);
}

void Emitter::count_inline(IRBuilder<>& builder, const Counted& counted, Value* value,
                           Value* node) {
    const auto times = [&](std::uint64_t accesses) -> Value* {
        if (counted.trip_count == nullptr) return number(accesses);
        return accesses == 1 ? counted.trip_count
                             : builder.CreateMul(counted.trip_count, number(accesses));
    };
    Value* index = builder.CreateAdd(builder.CreateShl(value, node_bits), node);
    grow(builder, own_, values_at, index, times(counted.group->accesses.size()));
    Value* cell = builder.CreateAnd(index, number(site_counters - 1));
    std::map<unsigned, std::uint64_t> by_site;
    for (const Spot& spot : counted.spots)
        for (unsigned k = 0; k < spot.sites; ++k) ++by_site[spot.first_site + k];
    for (const auto& [site, accesses] : by_site)
        grow(builder, sites_, sites_at + std::uint64_t{site} * site_counters * 8, cell,
             times(accesses));
}

Value* Emitter::site(IRBuilder<>& builder, const Spot& spot) {
    return builder.CreateAdd(builder.CreateLoad(i32_, all_sites_.base()),
                             ConstantInt::get(i32_, spot.first_site));
}

Value* Emitter::kinds(const Spot& spot) {
    return ConstantInt::get(i32_, 2 * spot.sites + (spot.writes ? 1 : 0));
}

void Emitter::call_count(IRBuilder<>& builder, Value* address, Value* times, const Spot& spot) {
    builder.CreateCall(count_, {own_, address, times, site(builder, spot), kinds(spot)});
}

void Emitter::call_range(IRBuilder<>& builder, Value* address, Value* step, Value* times,
                         const Spot& spot) {
    builder.CreateCall(range_, {own_, address, step, times, site(builder, spot), kinds(spot)});
}

// The accesses of an unrolled loop: n of them, as far from each other as the n-th part of the step.
bool Emitter::count_as_one(IRBuilder<>& builder, const Counted& counted) {
    const std::vector<Spot>& spots = counted.spots;
    const auto* step = dyn_cast_or_null<ConstantInt>(counted.step);
    const auto size = static_cast<std::int64_t>(spots.size());
    if (step == nullptr || size < 2) return false;
    const std::int64_t distance = spots[1].offset - spots[0].offset;
    if (std::abs(step->getSExtValue()) != distance * size) return false;
    for (std::size_t k = 1; k < spots.size(); ++k)
        if (spots[k].first_site != spots[0].first_site ||
            spots[k].offset - spots[k - 1].offset != distance)
            return false;
    const bool rises = step->getSExtValue() > 0;
    Value* first = builder.CreatePtrToInt(counted.first, i64_);
    call_range(builder, after(builder, first, (rises ? spots.front() : spots.back()).offset),
               number(static_cast<std::uint64_t>(rises ? distance : -distance)),
               builder.CreateMul(counted.trip_count, number(spots.size())), spots[0]);
    return true;
}

void Emitter::count_slowly(IRBuilder<>& builder, const Counted& counted) {
    if (count_as_one(builder, counted)) return;
    Value* first = builder.CreatePtrToInt(counted.first, i64_);
    for (const Spot& spot : counted.spots) {
        Value* address = after(builder, first, spot.offset);
        if (counted.trip_count == nullptr) call_count(builder, address, number(1), spot);
        else call_range(builder, address, counted.step, counted.trip_count, spot);
    }
}

void Emitter::count(const Counted& counted) {
    IRBuilder<> builder(counted.group->insertion_point);
    const auto* step = dyn_cast_or_null<ConstantInt>(counted.step);
    const auto* times = dyn_cast_or_null<ConstantInt>(counted.trip_count);
    if (step != nullptr && times != nullptr && !step->isZero() &&
        times->getZExtValue() >= page_bytes)
        return count_slowly(builder, counted);
    Value* on = node(*counted.group, builder);
    const Hot hot = look_up(builder, counted);
    Instruction *then = nullptr, *otherwise = nullptr;
    MDNode* weights = counted.trip_count == nullptr
                          ? MDBuilder(function_.getContext()).createBranchWeights(1 << 20, 1)
                          : nullptr;
    SplitBlockAndInsertIfThenElse(hot.fits, counted.group->insertion_point, &then, &otherwise,
                                  weights);
    IRBuilder<> inline_builder(then), slow_builder(otherwise);
    count_inline(inline_builder, counted, hot.value, on);
    count_slowly(slow_builder, counted);
}

// Of memset() and memcpy(): one access for each eight bytes.
void Emitter::count_bytes(MemIntrinsic& call) {
    const auto count = [&](Value* pointer, bool writes) {
        if (pointer->getType()->getPointerAddressSpace() != 0 ||
            isa<AllocaInst>(getUnderlyingObject(pointer)))
            return;
        IRBuilder<> builder(&call);
        Value* bytes = builder.CreateZExtOrTrunc(call.getLength(), i64_);
        Value* words = builder.CreateLShr(builder.CreateAdd(bytes, number(7)), 3);
        call_range(builder, builder.CreatePtrToInt(pointer, i64_), number(8), words,
                   single(call, writes));
    };
    count(call.getRawDest(), true);
    if (auto* transfer = dyn_cast<MemTransferInst>(&call)) count(transfer->getRawSource(), false);
}

// A masked vector is one access, a gathered or scattered one an access for each of its elements.
void Emitter::count_masked(IntrinsicInst& call) {
    const Intrinsic::ID id = call.getIntrinsicID();
    const bool writes = id == Intrinsic::masked_store || id == Intrinsic::masked_scatter;
    Value* pointer = call.getArgOperand(writes ? 1 : 0);
    Value* mask = call.getArgOperand(writes ? 3 : 2);
    const Spot spot = single(call, writes);
    IRBuilder<> builder(&call);
    if (!pointer->getType()->isVectorTy()) {
        Value* times = builder.CreateZExt(builder.CreateOrReduce(mask), i64_);
        return call_count(builder, builder.CreatePtrToInt(pointer, i64_), times, spot);
    }
    const auto* lanes = dyn_cast<FixedVectorType>(pointer->getType());
    for (unsigned k = 0; lanes != nullptr && k < lanes->getNumElements(); ++k) {
        Value* address = builder.CreatePtrToInt(builder.CreateExtractElement(pointer, k), i64_);
        Value* times = builder.CreateZExt(builder.CreateExtractElement(mask, k), i64_);
        call_count(builder, address, times, spot);
    }
}

}  // namespace assay::numa
