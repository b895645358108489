// The sites of a module: the places in its source that access memory. A table of them goes into the
// program, and the runtime numbers them anew when it starts.
#pragma once

#include <llvm/ADT/StringMap.h>
#include <llvm/IR/Module.h>

#include <vector>

namespace assay::numa {

class Sites {
public:
    explicit Sites(llvm::Module& module);

    // Where an access stands: equal for accesses of one line, function and kind.
    llvm::Constant* place(const llvm::Instruction& access, bool writes);
    // Adds sites with these places and consecutive numbers; returns the first one within the
    // module.
    unsigned add(llvm::ArrayRef<llvm::Constant*> places);
    // The variable with the number that the runtime has given the module's first site.
    llvm::GlobalVariable* base() const { return base_; }
    // Emits the table, and the constructor that tells the runtime of it.
    void finish();

private:
    llvm::Constant* text(llvm::StringRef words);

    llvm::Module& module_;
    llvm::Type* i32_;
    llvm::PointerType* bytes_;
    llvm::GlobalVariable* base_;
    llvm::StringMap<llvm::Constant*> texts_;
    std::vector<llvm::Constant*> sites_;
};

}  // namespace assay::numa
