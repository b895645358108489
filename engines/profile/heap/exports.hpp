// Looks up what a loaded object exports, in its own hash table.
//
// dlsym is not used: it waits for a lock that a thread holds while it loads an object, whose
// constructors may wait for this thread. It would also change what dlerror tells the program.
#pragma once

#include <cstdint>

#include "profile/heap/dynamic.hpp"

namespace assay::heap {

class Exports {
public:
    explicit Exports(const dl_phdr_info& object) : tables_(object) {}
    // The address of a name; 0 if it is not exported.
    std::uint64_t find(const char* name) const;
    // Its entry in the symbol table; null if it is not exported.
    const ElfW(Sym) * find_symbol(const char* name) const;

private:
    Dynamic tables_;
};

}  // namespace assay::heap
