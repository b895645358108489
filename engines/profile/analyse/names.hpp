// Names of functions in an object's symbol table, found by bisection: elfutils looks through all of
// the table for each address, which is seconds where there are a hundred thousand.
#pragma once

#include <elfutils/libdwfl.h>

#include <vector>

namespace assay::heap {

class Names {
public:
    explicit Names(Dwfl_Module* module);

    // Of the function that holds this address, as elfutils adds up addresses; null where none does.
    const char* find(GElf_Addr address) const;

private:
    struct Function {
        GElf_Addr begin, end;  // end: of one without a size, where the next one begins
        int binding;           // 0: global, 1: weak, 2: local
        const char* name;
    };
    std::vector<Function> functions_;  // by where they begin
};

}  // namespace assay::heap
