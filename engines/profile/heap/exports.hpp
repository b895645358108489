// What a loaded object exports, looked up in its own tables.
//
// dlsym would do it too, but waits for a lock that a thread holds while it loads an object, whose constructors may wait
// for this very thread; and a name that is not there changes what dlerror tells the program.
#pragma once

#include <link.h>

#include <cstdint>

namespace assay::heap {

class Exports {
public:
    explicit Exports(const dl_phdr_info& object);
    // Its address; 0 when it is not exported.
    std::uint64_t find(const char* name) const;

private:
    std::uint64_t bias_ = 0;
    const std::uint32_t* hashes_ = nullptr;  // DT_GNU_HASH
    const ElfW(Sym)* symbols_ = nullptr;
    const char* names_ = nullptr;
};

}  // namespace assay::heap
