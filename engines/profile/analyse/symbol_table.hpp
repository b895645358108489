// The function names of an object's symbol table, sorted for binary search. elfutils searches the
// whole table for every address, which takes seconds for a hundred thousand symbols.
#pragma once

#include <elfutils/libdwfl.h>

#include <vector>

namespace assay::heap {

class SymbolTable {
public:
    explicit SymbolTable(Dwfl_Module* module);

    // The function at an address (in elfutils' numbering of the module); null when there is none.
    const char* find(GElf_Addr address) const;

private:
    struct Function {
        GElf_Addr begin, end;  // end of a function without a size: where the next one begins
        int binding;           // 0: global, 1: weak, 2: local
        const char* name;
    };
    std::vector<Function> functions_;  // sorted by begin
};

}  // namespace assay::heap
