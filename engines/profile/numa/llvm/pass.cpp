// The clang pass of the exact mode: counts each load and store inline. It runs after the
// optimisations, so that only the remaining accesses are counted.
//
// At each access it loads the page's entry of the runtime's shadow memory and the processor from
// the thread's rseq area, and increments two counters of the thread: one of the access site, one of
// the shadow entry (the accessed object, the part of the object, the page's node;
// exact/layout.hpp). Accesses of one basic block to nearby addresses are counted together. In a
// loop whose addresses advance by a constant, all accesses are counted before the loop. Accesses to
// variables of the function's own stack are left out.
#include <llvm/IR/Module.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Passes/PassPlugin.h>
#include <llvm/Transforms/Utils/LoopSimplify.h>

#include <vector>

#include "profile/numa/llvm/emit.hpp"
#include "profile/numa/llvm/plan.hpp"
#include "profile/numa/llvm/sites.hpp"

namespace {

using namespace llvm;

void instrument(Function& function, FunctionAnalysisManager& analyses, assay::numa::Sites& sites) {
    auto& loops = analyses.getResult<LoopAnalysis>(function);
    auto& evolution = analyses.getResult<ScalarEvolutionAnalysis>(function);
    auto& tree = analyses.getResult<DominatorTreeAnalysis>(function);
    auto& assumptions = analyses.getResult<AssumptionAnalysis>(function);
    for (Loop* loop : loops)
        simplifyLoop(loop, &tree, &loops, &evolution, &assumptions, nullptr, false);
    assay::numa::Emitter(function, sites)
        .emit(assay::numa::plan(function, loops, tree, evolution), evolution);
}

// Functions that resolve ifuncs are not instrumented: the loader calls them before the runtime can
// run.
bool is_resolver(const Function& function) {
    for (const GlobalIFunc& indirect : function.getParent()->ifuncs())
        if (indirect.getResolverFunction() == &function) return true;
    return false;
}

struct CountAccesses : PassInfoMixin<CountAccesses> {
    static bool isRequired() { return true; }
    PreservedAnalyses run(Module& module, ModuleAnalysisManager& analyses) {
        auto& functions =
            analyses.getResult<FunctionAnalysisManagerModuleProxy>(module).getManager();
        std::vector<Function*> defined;
        for (Function& function : module)
            if (!function.isDeclaration() && !function.hasFnAttribute(Attribute::Naked) &&
                !is_resolver(function))
                defined.push_back(&function);
        assay::numa::Sites sites(module);
        for (Function* function : defined) instrument(*function, functions, sites);
        sites.emit_table();
        return PreservedAnalyses::none();
    }
};

}  // namespace

extern "C" LLVM_ATTRIBUTE_WEAK PassPluginLibraryInfo llvmGetPassPluginInfo() {
    return {LLVM_PLUGIN_API_VERSION, "assay-numa", "2", [](PassBuilder& builder) {
                builder.registerOptimizerLastEPCallback(
                    [](ModulePassManager& passes, OptimizationLevel) {
                        passes.addPass(CountAccesses());
                    });
            }};
}
