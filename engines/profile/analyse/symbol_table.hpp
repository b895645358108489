// The functions of an object's ELF symbol table, sorted by address for binary search. elfutils'
// own look-up (dwfl_module_addrsym) searches the whole table for every address, which takes seconds
// in all for a hundred thousand symbols.
#pragma once

#include <elfutils/libdwfl.h>

#include <vector>

namespace assay::heap {

class SymbolTable {
public:
    // Reads the table; empty if the module has none. The module must outlive the
    // SymbolTable, which refers to its names.
    explicit SymbolTable(Dwfl_Module* module);

    // Returns the mangled name of the innermost function that covers the address, or null. The
    // address is that in the object file plus the bias of dwfl_module_getelf().
    const char* find(GElf_Addr address) const;

private:
    struct Function {
        GElf_Addr begin, end;  // end of a function of size 0: the begin of the next function
        int binding;           // 0: global, 1: weak, 2: local
        const char* name;
    };
    std::vector<Function> functions_;  // sorted by begin
};

}  // namespace assay::heap
