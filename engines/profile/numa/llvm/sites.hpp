// The access sites of a module: function, source line and kind of each counted access. The program
// holds a table of them. The runtime gives them program-wide numbers at start-up.
#pragma once

#include <llvm/ADT/StringMap.h>
#include <llvm/IR/Module.h>

#include <vector>

namespace assay::numa {

class Sites {
public:
    explicit Sites(llvm::Module& module);

    // The table entry of an access. Accesses of the same line, function and kind have equal
    // entries.
    llvm::Constant* source_location(const llvm::Instruction& access, bool writes);
    // Adds sites with consecutive numbers. Returns the number of the first one within the module.
    unsigned add(llvm::ArrayRef<llvm::Constant*> locations);
    // The variable that holds the program-wide number of the module's first site.
    llvm::GlobalVariable* base() const { return base_; }
    // Emits the table, and the constructor that registers it with the runtime.
    void emit_table();

private:
    llvm::Constant* string_constant(llvm::StringRef text);

    llvm::Module& module_;
    llvm::Type* i32_;
    llvm::PointerType* bytes_;
    llvm::GlobalVariable* base_;
    llvm::StringMap<llvm::Constant*> string_constants_;
    std::vector<llvm::Constant*> sites_;
};

}  // namespace assay::numa
