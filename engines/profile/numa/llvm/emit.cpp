// Emits the counting code of one function: a fast path inline, and calls of the runtime
// (exact/inline.cpp) for all other cases.
#include "profile/numa/llvm/emit.hpp"

#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>

#include <map>

#include "profile/numa/exact/layout.hpp"

namespace assay::numa {

using namespace llvm;

Emitter::Emitter(Function& function, Sites& sites)
    : function_(function),
      module_(*function.getParent()),
      site_table_(sites),
      i8_(Type::getInt8Ty(function.getContext())),
      i32_(Type::getInt32Ty(function.getContext())),
      i64_(Type::getInt64Ty(function.getContext())),
      bytes_(Type::getInt8PtrTy(function.getContext())) {
    Type* void_type = Type::getVoidTy(function.getContext());
    thread_ = module_.getOrInsertFunction("__assay_numa_thread", bytes_);
    count_ = module_.getOrInsertFunction("__assay_numa_count", void_type, bytes_, i64_, i64_, i32_,
                                         i32_);
    range_ = module_.getOrInsertFunction("__assay_numa_range", void_type, bytes_, i64_, i64_, i64_,
                                         i32_, i32_);
    for (FunctionCallee callee : {thread_, count_, range_})
        if (auto* runtime_function = dyn_cast<Function>(callee.getCallee())) {
            runtime_function->setDoesNotThrow();
            runtime_function->addFnAttr(Attribute::Cold);
        }
}

void Emitter::emit(const Plan& plan, ScalarEvolution& evolution) {
    if (plan.groups.empty() && plan.intrinsics.empty()) return;
    previous_regions_ = &plan.previous_regions;
    // All addresses are expanded first, since the counting code splits basic blocks, which
    // invalidates the analyses.
    SCEVExpander expander(evolution, module_.getDataLayout(), "assay");
    std::vector<ExpandedGroup> groups;
    groups.reserve(plan.groups.size());
    for (const Group& group : plan.groups) groups.push_back(expand(group, expander));
    emit_prologue();
    for (const ExpandedGroup& expanded : groups) count_group(expanded);
    for (IntrinsicInst* call : plan.intrinsics) {
        if (auto* bytes = dyn_cast<MemIntrinsic>(call)) count_bytes(*bytes);
        else count_masked(*call);
    }
}

Emitter::ExpandedGroup Emitter::expand(const Group& group, SCEVExpander& expander) {
    ExpandedGroup expanded{&group, group.accesses[0].pointer, nullptr, nullptr,
                           collect_address_sites(group)};
    if (group.trip_count != nullptr) {
        expanded.first = expander.expandCodeFor(group.start, bytes_, group.insertion_point);
        expanded.step = expander.expandCodeFor(group.step, i64_, group.insertion_point);
        expanded.trip_count = expander.expandCodeFor(group.trip_count, i64_, group.insertion_point);
    }
    return expanded;
}

// Accesses of a group with equal source locations share sites. Groups share no site: increments of
// one shared counter would depend on each other and stall.
std::vector<Emitter::AddressSites> Emitter::collect_address_sites(const Group& group) {
    std::map<std::int64_t, std::vector<Constant*>> locations;
    std::map<std::int64_t, bool> writes;
    for (const Access& access : group.accesses) {
        locations[access.offset].push_back(
            site_table_.source_location(*access.instruction, access.writes));
        writes[access.offset] |= access.writes;
    }
    std::map<std::vector<Constant*>, unsigned> numbers;
    std::vector<AddressSites> address_sites;
    for (const auto& [offset, sites] : locations) {
        const auto [entry, is_new] = numbers.try_emplace(sites, 0);
        if (is_new) entry->second = site_table_.add(sites);
        address_sites.push_back(
            {offset, entry->second, static_cast<unsigned>(sites.size()), writes[offset]});
    }
    return address_sites;
}

Emitter::AddressSites Emitter::single_site(const Instruction& access, bool writes) {
    return {0, site_table_.add(site_table_.source_location(access, writes)), 1, writes};
}

// Emits the load of the thread's counters at the function's entry.
void Emitter::emit_prologue() {
    auto* thread_variable =
        cast<GlobalVariable>(module_.getOrInsertGlobal("__assay_numa_own", bytes_));
    thread_variable->setThreadLocalMode(GlobalValue::InitialExecTLSModel);
    BasicBlock& entry = function_.getEntryBlock();
    std::vector<AllocaInst*> variables;
    for (Instruction& instruction : entry)
        if (auto* variable = dyn_cast<AllocaInst>(&instruction);
            variable && variable->isStaticAlloca())
            variables.push_back(variable);
    for (AllocaInst* variable : reverse(variables)) variable->moveBefore(&entry.front());
    auto position = entry.begin();
    while (isa<AllocaInst>(*position)) ++position;
    Instruction* first = &*position;

    IRBuilder<> builder(first);
    Value* loaded_counts = builder.CreateLoad(bytes_, thread_variable);
    Instruction* slow_path = SplitBlockAndInsertIfThen(
        builder.CreateIsNull(loaded_counts), first, false,
        MDBuilder(function_.getContext()).createBranchWeights(1, 1 << 20));
    BasicBlock* load_block = slow_path->getParent()->getSinglePredecessor();
    Value* new_counts = IRBuilder<>(slow_path).CreateCall(thread_, {});
    builder.SetInsertPoint(first);
    PHINode* counts = builder.CreatePHI(bytes_, 2);
    counts->addIncoming(loaded_counts, load_block);
    counts->addIncoming(new_counts, slow_path->getParent());
    thread_counts_ = counts;
    Value* base = builder.CreateZExt(builder.CreateLoad(i32_, site_table_.base()), i64_);
    sites_ =
        builder.CreateGEP(i8_, thread_counts_, builder.CreateMul(base, number(site_counters * 8)));
    LoadInst* processor = builder.CreateLoad(
        i32_->getPointerTo(),
        builder.CreateBitCast(thread_counts_, i32_->getPointerTo()->getPointerTo()));
    processor->setMetadata(LLVMContext::MD_invariant_load, MDNode::get(function_.getContext(), {}));
    processor_ = processor;
}

// The node of the processor that runs the thread. It is read once per chain of regions, which has
// no calls and does not repeat.
Value* Emitter::node(const Group& group, IRBuilder<>& builder) {
    for (const void* region = group.region; region != nullptr;
         region = previous_regions_->lookup(region))
        if (Value* known = nodes_.lookup(region)) return known;
    Value*& cached = nodes_[group.region];
    Value* processor = builder.CreateAnd(builder.CreateLoad(i32_, processor_, true),
                                         ConstantInt::get(i32_, max_processors - 1));
    Value* entry = builder.CreateGEP(
        i8_, thread_counts_,
        builder.CreateAdd(builder.CreateZExt(processor, i64_), number(nodes_offset)));
    return cached = builder.CreateZExt(builder.CreateLoad(i8_, entry), i64_);
}

Value* Emitter::add_offset(IRBuilder<>& builder, Value* address, std::int64_t offset) {
    return builder.CreateAdd(address, number(static_cast<std::uint64_t>(offset)));
}

// Inline code counts a group if all its addresses lie in one page that has a shadow value.
Emitter::FastPath Emitter::emit_fast_path_check(IRBuilder<>& builder,
                                                const ExpandedGroup& expanded) {
    const std::int64_t lowest = expanded.address_sites.front().offset,
                       highest = expanded.address_sites.back().offset;
    Value* first = builder.CreatePtrToInt(expanded.first, i64_);
    Value* low = add_offset(builder, first, lowest);
    Value* shadow = builder.CreateIntToPtr(number(shadow_address), i32_->getPointerTo());
    Value* value = builder.CreateLoad(
        i32_, builder.CreateGEP(i32_, shadow, builder.CreateLShr(low, page_bits)));
    Value* is_fast = builder.CreateICmpNE(value, ConstantInt::get(i32_, 0));
    Value* differing_bits = nullptr;  // the bits in which the addresses differ
    const auto compare = [&](Value* other) {
        Value* bits = builder.CreateXor(low, other);
        differing_bits = differing_bits == nullptr ? bits : builder.CreateOr(differing_bits, bits);
    };
    if (highest != lowest) compare(add_offset(builder, first, highest));
    if (expanded.trip_count != nullptr) {
        Value* last = builder.CreateAdd(
            first,
            builder.CreateMul(expanded.step, builder.CreateSub(expanded.trip_count, number(1))));
        compare(add_offset(builder, last, lowest));
        if (highest != lowest) compare(add_offset(builder, last, highest));
    }
    if (differing_bits != nullptr)
        is_fast =
            builder.CreateAnd(is_fast, builder.CreateICmpULT(differing_bits, number(page_bytes)));
    return {is_fast, builder.CreateZExt(value, i64_)};
}

void Emitter::increment(IRBuilder<>& builder, Value* table, std::uint64_t offset, Value* index,
                        Value* by) {
    Value* counters =
        builder.CreateBitCast(builder.CreateGEP(i8_, table, number(offset)), i64_->getPointerTo());
    Value* counter = builder.CreateGEP(i64_, counters, index);
    builder.CreateStore(builder.CreateAdd(builder.CreateLoad(i64_, counter), by), counter);
}

void Emitter::count_inline(IRBuilder<>& builder, const ExpandedGroup& expanded, Value* value,
                           Value* node) {
    const auto total = [&](std::uint64_t accesses) -> Value* {
        if (expanded.trip_count == nullptr) return number(accesses);
        return accesses == 1 ? expanded.trip_count
                             : builder.CreateMul(expanded.trip_count, number(accesses));
    };
    Value* index = builder.CreateAdd(builder.CreateShl(value, node_bits), node);
    increment(builder, thread_counts_, values_offset, index,
              total(expanded.group->accesses.size()));
    Value* cell = builder.CreateAnd(index, number(site_counters - 1));
    std::map<unsigned, std::uint64_t> by_site;
    for (const AddressSites& address_sites : expanded.address_sites)
        for (unsigned k = 0; k < address_sites.sites; ++k) ++by_site[address_sites.first_site + k];
    for (const auto& [site, accesses] : by_site)
        increment(builder, sites_, sites_offset + std::uint64_t{site} * site_counters * 8, cell,
                  total(accesses));
}

Value* Emitter::site(IRBuilder<>& builder, const AddressSites& address_sites) {
    return builder.CreateAdd(builder.CreateLoad(i32_, site_table_.base()),
                             ConstantInt::get(i32_, address_sites.first_site));
}

Value* Emitter::packed_count(const AddressSites& address_sites) {
    return ConstantInt::get(i32_, 2 * address_sites.sites + (address_sites.writes ? 1 : 0));
}

void Emitter::call_count(IRBuilder<>& builder, Value* address, Value* accesses,
                         const AddressSites& address_sites) {
    builder.CreateCall(count_, {thread_counts_, address, accesses, site(builder, address_sites),
                                packed_count(address_sites)});
}

void Emitter::call_range(IRBuilder<>& builder, Value* address, Value* step, Value* accesses,
                         const AddressSites& address_sites) {
    builder.CreateCall(range_, {thread_counts_, address, step, accesses,
                                site(builder, address_sites), packed_count(address_sites)});
}

// Counts the n accesses of a loop that was unrolled n times as one range: their distance is the
// loop's step divided by n.
bool Emitter::count_unrolled(IRBuilder<>& builder, const ExpandedGroup& expanded) {
    const std::vector<AddressSites>& address_sites = expanded.address_sites;
    const auto* step = dyn_cast_or_null<ConstantInt>(expanded.step);
    const auto size = static_cast<std::int64_t>(address_sites.size());
    if (step == nullptr || size < 2) return false;
    const std::int64_t distance = address_sites[1].offset - address_sites[0].offset;
    if (std::abs(step->getSExtValue()) != distance * size) return false;
    for (std::size_t k = 1; k < address_sites.size(); ++k)
        if (address_sites[k].first_site != address_sites[0].first_site ||
            address_sites[k].offset - address_sites[k - 1].offset != distance)
            return false;
    const bool rises = step->getSExtValue() > 0;
    Value* first = builder.CreatePtrToInt(expanded.first, i64_);
    call_range(
        builder,
        add_offset(builder, first, (rises ? address_sites.front() : address_sites.back()).offset),
        number(static_cast<std::uint64_t>(rises ? distance : -distance)),
        builder.CreateMul(expanded.trip_count, number(address_sites.size())), address_sites[0]);
    return true;
}

void Emitter::call_runtime(IRBuilder<>& builder, const ExpandedGroup& expanded) {
    if (count_unrolled(builder, expanded)) return;
    Value* first = builder.CreatePtrToInt(expanded.first, i64_);
    for (const AddressSites& address_sites : expanded.address_sites) {
        Value* address = add_offset(builder, first, address_sites.offset);
        if (expanded.trip_count == nullptr) call_count(builder, address, number(1), address_sites);
        else call_range(builder, address, expanded.step, expanded.trip_count, address_sites);
    }
}

void Emitter::count_group(const ExpandedGroup& expanded) {
    IRBuilder<> builder(expanded.group->insertion_point);
    const auto* step = dyn_cast_or_null<ConstantInt>(expanded.step);
    const auto* trip_count = dyn_cast_or_null<ConstantInt>(expanded.trip_count);
    if (step != nullptr && trip_count != nullptr && !step->isZero() &&
        trip_count->getZExtValue() >= page_bytes)
        return call_runtime(builder, expanded);
    Value* cpu_node = node(*expanded.group, builder);
    const FastPath fast_path = emit_fast_path_check(builder, expanded);
    Instruction *then = nullptr, *otherwise = nullptr;
    MDNode* weights = expanded.trip_count == nullptr
                          ? MDBuilder(function_.getContext()).createBranchWeights(1 << 20, 1)
                          : nullptr;
    SplitBlockAndInsertIfThenElse(fast_path.is_fast, expanded.group->insertion_point, &then,
                                  &otherwise, weights);
    IRBuilder<> inline_builder(then), slow_builder(otherwise);
    count_inline(inline_builder, expanded, fast_path.value, cpu_node);
    call_runtime(slow_builder, expanded);
}

// Counts memset(), memcpy() and memmove() as one access per eight bytes.
void Emitter::count_bytes(MemIntrinsic& call) {
    const auto count = [&](Value* pointer, bool writes) {
        if (pointer->getType()->getPointerAddressSpace() != 0 ||
            isa<AllocaInst>(getUnderlyingObject(pointer)))
            return;
        IRBuilder<> builder(&call);
        Value* bytes = builder.CreateZExtOrTrunc(call.getLength(), i64_);
        Value* word_count = builder.CreateLShr(builder.CreateAdd(bytes, number(7)), 3);
        call_range(builder, builder.CreatePtrToInt(pointer, i64_), number(8), word_count,
                   single_site(call, writes));
    };
    count(call.getRawDest(), true);
    if (auto* transfer = dyn_cast<MemTransferInst>(&call)) count(transfer->getRawSource(), false);
}

// Counts a masked vector load or store as one access, and a gather or scatter as one access per
// active element.
void Emitter::count_masked(IntrinsicInst& call) {
    const Intrinsic::ID id = call.getIntrinsicID();
    const bool writes = id == Intrinsic::masked_store || id == Intrinsic::masked_scatter;
    Value* pointer = call.getArgOperand(writes ? 1 : 0);
    Value* mask = call.getArgOperand(writes ? 3 : 2);
    const AddressSites address_sites = single_site(call, writes);
    IRBuilder<> builder(&call);
    if (!pointer->getType()->isVectorTy()) {
        Value* accesses = builder.CreateZExt(builder.CreateOrReduce(mask), i64_);
        return call_count(builder, builder.CreatePtrToInt(pointer, i64_), accesses, address_sites);
    }
    const auto* lanes = dyn_cast<FixedVectorType>(pointer->getType());
    for (unsigned k = 0; lanes != nullptr && k < lanes->getNumElements(); ++k) {
        Value* address = builder.CreatePtrToInt(builder.CreateExtractElement(pointer, k), i64_);
        Value* accesses = builder.CreateZExt(builder.CreateExtractElement(mask, k), i64_);
        call_count(builder, address, accesses, address_sites);
    }
}

}  // namespace assay::numa
