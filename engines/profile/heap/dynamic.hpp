// The dynamic section of a loaded object: symbols, their names, and relocations.
#pragma once

#include <link.h>

#include <cstdint>
#include <span>

namespace assay::heap {

struct Dynamic {
    explicit Dynamic(const dl_phdr_info& object);

    std::uint64_t bias = 0;
    const std::uint32_t* hashes = nullptr;  // DT_GNU_HASH
    const ElfW(Sym) * symbols = nullptr;
    const char* names = nullptr;
    std::span<const ElfW(Rela)> call_relocations;  // DT_JMPREL, bound at the first call or before
    std::span<const ElfW(Rela)> data_relocations;  // DT_RELA
};

}  // namespace assay::heap
