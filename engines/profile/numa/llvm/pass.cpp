// A pass of clang 14 for the exact mode: counts each load and store inline, at the end of the
// optimisation, so that only what is left is counted.
//
// At each access the page's value is loaded from the runtime's shadow, the processor from the
// thread's rseq area, and two counters of the thread grow: of the site, and of the value (object,
// part and node). In a loop whose addresses advance by a constant, one call before the loop counts
// all of its accesses, page by page: then the order within the loop is not kept, which matters only
// to the first touch of a page. Accesses to variables of the function's own stack are left out.
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/Analysis/ScalarEvolution.h>
#include <llvm/Analysis/ScalarEvolutionExpressions.h>
#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/DebugInfoMetadata.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Module.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Passes/PassPlugin.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>
#include <llvm/Transforms/Utils/LoopSimplify.h>
#include <llvm/Transforms/Utils/ModuleUtils.h>
#include <llvm/Transforms/Utils/ScalarEvolutionExpander.h>

#include <vector>

namespace {

using namespace llvm;

struct Access {
    Instruction* instruction;
    Value* pointer;
    bool writes, reads;
};

// Sites of a module, and what its code needs of the runtime.
class ModuleSites {
public:
    explicit ModuleSites(Module& module)
        : module_(module),
          context_(module.getContext()),
          i32_(Type::getInt32Ty(context_)),
          i64_(Type::getInt64Ty(context_)),
          bytes_(Type::getInt8PtrTy(context_)) {
        base_ = new GlobalVariable(module, i32_, false, GlobalValue::InternalLinkage,
                                   ConstantInt::get(i32_, 0), "__assay_numa_base");
        count_ = module.getOrInsertFunction("__assay_numa_count", Type::getVoidTy(context_), i64_,
                                            i32_, i32_);
        range_ = module.getOrInsertFunction("__assay_numa_range", Type::getVoidTy(context_), i64_,
                                            i64_, i64_, i32_, i32_);
    }

    bool instrument(Function& function, FunctionAnalysisManager& analyses);
    void finish();

private:
    Constant* text(StringRef words) {
        Constant*& known = texts_[words];
        if (known == nullptr) {
            Constant* data = ConstantDataArray::getString(context_, words);
            auto* global = new GlobalVariable(module_, data->getType(), true,
                                              GlobalValue::PrivateLinkage, data);
            known = ConstantExpr::getBitCast(global, bytes_);
        }
        return known;
    }
    unsigned add_site(const Access& access, bool writes);
    bool hoist(const Access& access, LoopInfo& loops, DominatorTree& tree,
               ScalarEvolution& evolution, SCEVExpander& expander);
    Value* site(IRBuilder<>& builder, unsigned number) {
        return builder.CreateAdd(builder.CreateLoad(i32_, base_), ConstantInt::get(i32_, number));
    }
    void count_at(const Access& access);
    void count_bytes(MemIntrinsic& call);

    Module& module_;
    LLVMContext& context_;
    Type *i32_, *i64_;
    PointerType* bytes_;
    GlobalVariable* base_;
    FunctionCallee count_, range_;
    StringMap<Constant*> texts_;
    std::vector<Constant*> sites_;
};

unsigned ModuleSites::add_site(const Access& access, bool writes) {
    std::string file, function = access.instruction->getFunction()->getName().str();
    unsigned line = 0;
    if (const DILocation* location = access.instruction->getDebugLoc()) {
        line = location->getLine();
        file = location->getFilename().str();
        if (!file.empty() && file[0] != '/' && !location->getDirectory().empty())
            file = (location->getDirectory() + "/" + file).str();
        if (const DISubprogram* subprogram = location->getScope()->getSubprogram())
            function = subprogram->getName().str();
    }
    auto* type = StructType::get(bytes_, bytes_, i32_, i32_);
    sites_.push_back(
        ConstantStruct::get(type, {text(function), text(file), ConstantInt::get(i32_, line),
                                   ConstantInt::get(i32_, writes ? 1 : 0)}));
    return static_cast<unsigned>(sites_.size() - 1);
}

void ModuleSites::count_at(const Access& access) {
    for (const bool writes : {false, true}) {
        if (writes ? !access.writes : !access.reads) continue;
        IRBuilder<> builder(access.instruction);
        const unsigned number = add_site(access, writes);
        builder.CreateCall(count_, {builder.CreatePtrToInt(access.pointer, i64_),
                                    site(builder, number), ConstantInt::get(i32_, writes ? 1 : 0)});
    }
}

// Of memset() and memcpy(): one access for each eight bytes.
void ModuleSites::count_bytes(MemIntrinsic& call) {
    const auto count = [&](Value* pointer, bool writes) {
        if (pointer->getType()->getPointerAddressSpace() != 0 ||
            isa<AllocaInst>(getUnderlyingObject(pointer)))
            return;
        IRBuilder<> builder(&call);
        Value* bytes = builder.CreateZExtOrTrunc(call.getLength(), i64_);
        Value* words = builder.CreateLShr(builder.CreateAdd(bytes, ConstantInt::get(i64_, 7)), 3);
        const unsigned number = add_site({&call, pointer, writes, !writes}, writes);
        builder.CreateCall(range_,
                           {builder.CreatePtrToInt(pointer, i64_), ConstantInt::get(i64_, 8), words,
                            site(builder, number), ConstantInt::get(i32_, writes ? 1 : 0)});
    };
    count(call.getRawDest(), true);
    if (auto* transfer = dyn_cast<MemTransferInst>(&call)) count(transfer->getRawSource(), false);
}

// Counts the access before its loop, if its addresses are start + k * step there.
bool ModuleSites::hoist(const Access& access, LoopInfo& loops, DominatorTree& tree,
                        ScalarEvolution& evolution, SCEVExpander& expander) {
    if (access.reads && access.writes) return false;
    BasicBlock* block = access.instruction->getParent();
    Loop* loop = loops.getLoopFor(block);
    if (loop == nullptr) return false;
    BasicBlock *before = loop->getLoopPreheader(), *exit = loop->getUniqueExitBlock(),
               *latch = loop->getLoopLatch();
    if (before == nullptr || exit == nullptr || latch == nullptr || !loop->hasDedicatedExits() ||
        loop->getExitingBlock() != latch || !tree.dominates(block, latch) ||
        !evolution.hasLoopInvariantBackedgeTakenCount(loop))
        return false;
    const SCEV* address = evolution.getSCEV(access.pointer);
    const SCEV *start = address, *step = evolution.getZero(i64_);
    if (const auto* recurrence = dyn_cast<SCEVAddRecExpr>(address)) {
        if (recurrence->getLoop() != loop || !recurrence->isAffine()) return false;
        start = recurrence->getStart();
        step = recurrence->getStepRecurrence(evolution);
    } else if (!evolution.isLoopInvariant(address, loop)) {
        return false;
    }
    Instruction* place = before->getTerminator();
    const SCEV* taken = evolution.getBackedgeTakenCount(loop);
    if (!evolution.isLoopInvariant(step, loop) || !isSafeToExpandAt(start, place, evolution) ||
        !isSafeToExpandAt(step, place, evolution) || !isSafeToExpandAt(taken, place, evolution))
        return false;
    Value* first = expander.expandCodeFor(start, access.pointer->getType(), place);
    Value* stride =
        expander.expandCodeFor(evolution.getTruncateOrSignExtend(step, i64_), i64_, place);
    const SCEV* times = evolution.getAddExpr(evolution.getTruncateOrZeroExtend(taken, i64_),
                                             evolution.getOne(i64_));
    Value* count = expander.expandCodeFor(times, i64_, place);
    // Before the loop, so that a page's first touch is this thread's.
    IRBuilder<> builder(place);
    const unsigned number = add_site(access, access.writes);
    builder.CreateCall(range_,
                       {builder.CreatePtrToInt(first, i64_), stride, count, site(builder, number),
                        ConstantInt::get(i32_, access.writes ? 1 : 0)});
    return true;
}

bool ModuleSites::instrument(Function& function, FunctionAnalysisManager& analyses) {
    auto& loops = analyses.getResult<LoopAnalysis>(function);
    auto& evolution = analyses.getResult<ScalarEvolutionAnalysis>(function);
    auto& tree = analyses.getResult<DominatorTreeAnalysis>(function);
    auto& assumptions = analyses.getResult<AssumptionAnalysis>(function);
    for (Loop* loop : loops)
        simplifyLoop(loop, &tree, &loops, &evolution, &assumptions, nullptr, false);
    std::vector<Access> accesses;
    std::vector<MemIntrinsic*> calls;
    for (Instruction& instruction : instructions(function)) {
        if (auto* load = dyn_cast<LoadInst>(&instruction))
            accesses.push_back({load, load->getPointerOperand(), false, true});
        else if (auto* store = dyn_cast<StoreInst>(&instruction))
            accesses.push_back({store, store->getPointerOperand(), true, false});
        else if (auto* change = dyn_cast<AtomicRMWInst>(&instruction))
            accesses.push_back({change, change->getPointerOperand(), true, false});
        else if (auto* exchange = dyn_cast<AtomicCmpXchgInst>(&instruction))
            accesses.push_back({exchange, exchange->getPointerOperand(), true, false});
        else if (auto* call = dyn_cast<MemIntrinsic>(&instruction)) calls.push_back(call);
    }
    SCEVExpander expander(evolution, module_.getDataLayout(), "assay");
    std::vector<Access> others;
    for (const Access& access : accesses) {
        if (access.pointer->getType()->getPointerAddressSpace() != 0 ||
            isa<AllocaInst>(getUnderlyingObject(access.pointer)))
            continue;
        if (!hoist(access, loops, tree, evolution, expander)) others.push_back(access);
    }
    for (const Access& access : others) count_at(access);
    for (MemIntrinsic* call : calls) count_bytes(*call);
    return !accesses.empty() || !calls.empty();
}

// A constructor tells the runtime of the module's sites.
void ModuleSites::finish() {
    if (sites_.empty()) return;
    auto* type = ArrayType::get(sites_[0]->getType(), sites_.size());
    auto* list = new GlobalVariable(module_, type, true, GlobalValue::PrivateLinkage,
                                    ConstantArray::get(type, sites_));
    FunctionCallee enter = module_.getOrInsertFunction("__assay_numa_module", i32_, bytes_, i32_);
    auto* start = Function::Create(FunctionType::get(Type::getVoidTy(context_), false),
                                   GlobalValue::InternalLinkage, "__assay_numa_start", module_);
    IRBuilder<> builder(BasicBlock::Create(context_, "", start));
    builder.CreateStore(builder.CreateCall(enter, {builder.CreateBitCast(list, bytes_),
                                                   ConstantInt::get(i32_, sites_.size())}),
                        base_);
    builder.CreateRetVoid();
    appendToGlobalCtors(module_, start, 102);
}

struct CountAccesses : PassInfoMixin<CountAccesses> {
    static bool isRequired() { return true; }
    PreservedAnalyses run(Module& module, ModuleAnalysisManager& analyses) {
        auto& functions =
            analyses.getResult<FunctionAnalysisManagerModuleProxy>(module).getManager();
        std::vector<Function*> defined;
        for (Function& function : module)
            if (!function.isDeclaration()) defined.push_back(&function);
        ModuleSites counted(module);
        for (Function* function : defined) counted.instrument(*function, functions);
        counted.finish();
        return PreservedAnalyses::none();
    }
};

}  // namespace

extern "C" LLVM_ATTRIBUTE_WEAK PassPluginLibraryInfo llvmGetPassPluginInfo() {
    return {LLVM_PLUGIN_API_VERSION, "assay-numa", "1", [](PassBuilder& builder) {
                builder.registerOptimizerLastEPCallback(
                    [](ModulePassManager& passes, OptimizationLevel) {
                        passes.addPass(CountAccesses());
                    });
            }};
}
