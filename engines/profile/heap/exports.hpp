// Looks up the symbols that a loaded object exports, in the object's hash table.
//
// dlsym is not used, since it waits for a lock that another thread holds while it loads an object,
// whose constructors may wait for this thread. It would also change the result of dlerror.
#pragma once

#include <cstdint>

#include "profile/heap/dynamic.hpp"

namespace assay::heap {

class Exports {
public:
    explicit Exports(const dl_phdr_info& object) : tables_(object) {}
    // The address of a symbol; 0 if it is not exported.
    std::uint64_t find(const char* name) const;
    // The symbol table entry of a symbol; null if it is not exported.
    const ElfW(Sym) * find_symbol(const char* name) const;

private:
    Dynamic tables_;
};

}  // namespace assay::heap
