// Builds the table of access sites of a module and the constructor that registers it.
#include "profile/numa/llvm/sites.hpp"

#include <llvm/IR/Constants.h>
#include <llvm/IR/DebugInfoMetadata.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/Transforms/Utils/ModuleUtils.h>

namespace assay::numa {

using namespace llvm;

Sites::Sites(Module& module)
    : module_(module),
      i32_(Type::getInt32Ty(module.getContext())),
      bytes_(Type::getInt8PtrTy(module.getContext())),
      base_(new GlobalVariable(module, i32_, false, GlobalValue::InternalLinkage,
                               ConstantInt::get(i32_, 0), "__assay_numa_base")) {}

Constant* Sites::string_constant(StringRef text) {
    Constant*& constant = string_constants_[text];
    if (constant == nullptr) {
        Constant* data = ConstantDataArray::getString(module_.getContext(), text);
        auto* global =
            new GlobalVariable(module_, data->getType(), true, GlobalValue::PrivateLinkage, data);
        constant = ConstantExpr::getBitCast(global, bytes_);
    }
    return constant;
}

Constant* Sites::source_location(const Instruction& access, bool writes) {
    std::string file, function = access.getFunction()->getName().str();
    unsigned line = 0;
    if (const DILocation* location = access.getDebugLoc()) {
        line = location->getLine();
        file = location->getFilename().str();
        if (!file.empty() && file[0] != '/' && !location->getDirectory().empty())
            file = (location->getDirectory() + "/" + file).str();
        if (const DISubprogram* subprogram = location->getScope()->getSubprogram())
            function = subprogram->getName().str();
    }
    auto* type = StructType::get(bytes_, bytes_, i32_, i32_);
    return ConstantStruct::get(
        type, {string_constant(function), string_constant(file), ConstantInt::get(i32_, line),
               ConstantInt::get(i32_, writes ? 1 : 0)});
}

unsigned Sites::add(ArrayRef<Constant*> locations) {
    const auto first = static_cast<unsigned>(sites_.size());
    sites_.insert(sites_.end(), locations.begin(), locations.end());
    return first;
}

void Sites::emit_table() {
    if (sites_.empty()) return;
    LLVMContext& context = module_.getContext();
    auto* type = ArrayType::get(sites_[0]->getType(), sites_.size());
    auto* list = new GlobalVariable(module_, type, true, GlobalValue::PrivateLinkage,
                                    ConstantArray::get(type, sites_));
    FunctionCallee register_sites =
        module_.getOrInsertFunction("__assay_numa_module", i32_, bytes_, i32_);
    auto* constructor =
        Function::Create(FunctionType::get(Type::getVoidTy(context), false),
                         GlobalValue::InternalLinkage, "__assay_numa_start", module_);
    IRBuilder<> builder(BasicBlock::Create(context, "", constructor));
    builder.CreateStore(builder.CreateCall(register_sites, {builder.CreateBitCast(list, bytes_),
                                                            ConstantInt::get(i32_, sites_.size())}),
                        base_);
    builder.CreateRetVoid();
    appendToGlobalCtors(module_, constructor, 102);
}

}  // namespace assay::numa
