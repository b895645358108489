// What a loaded object exports, looked up in its own tables.
//
// dlsym would do it too, but waits for a lock that a thread holds while it loads an object, whose
// constructors may wait for this very thread; and a name that is not there changes what dlerror
// tells the program.
#pragma once

#include <cstdint>

#include "profile/heap/dynamic.hpp"

namespace assay::heap {

class Exports {
public:
    explicit Exports(const dl_phdr_info& object) : tables_(object) {}
    // Its address; 0 when it is not exported.
    std::uint64_t find(const char* name) const;

private:
    Dynamic tables_;
};

}  // namespace assay::heap
