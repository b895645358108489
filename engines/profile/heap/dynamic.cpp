// Reads the dynamic section of a loaded object.
#include "profile/heap/dynamic.hpp"

#include <elf.h>

namespace assay::heap {

Dynamic::Dynamic(const dl_phdr_info& object) : bias(object.dlpi_addr) {
    const ElfW(Dyn)* entry = nullptr;
    for (int k = 0; k < object.dlpi_phnum; ++k)
        if (object.dlpi_phdr[k].p_type == PT_DYNAMIC)
            entry = reinterpret_cast<const ElfW(Dyn)*>(bias + object.dlpi_phdr[k].p_vaddr);
    if (entry == nullptr) return;
    std::uint64_t calls_address = 0, calls_bytes = 0, data_address = 0, data_bytes = 0,
                  plt_relocation_type = 0;
    for (; entry->d_tag != DT_NULL; ++entry) {
        const std::uint64_t value = entry->d_un.d_ptr;
        // The loader replaces offsets by addresses in most objects, but not in all.
        const std::uint64_t address = value < bias ? bias + value : value;
        switch (entry->d_tag) {
            case DT_GNU_HASH: hashes = reinterpret_cast<const std::uint32_t*>(address); break;
            case DT_SYMTAB: symbols = reinterpret_cast<const ElfW(Sym)*>(address); break;
            case DT_STRTAB: names = reinterpret_cast<const char*>(address); break;
            case DT_PLTREL: plt_relocation_type = value; break;
            case DT_JMPREL: calls_address = address; break;
            case DT_PLTRELSZ: calls_bytes = value; break;
            case DT_RELA: data_address = address; break;
            case DT_RELASZ: data_bytes = value; break;
            default: break;
        }
    }
    if (symbols == nullptr || names == nullptr) {
        hashes = nullptr;
        return;
    }
    if (plt_relocation_type == DT_RELA)
        call_relocations = {reinterpret_cast<const ElfW(Rela)*>(calls_address),
                            calls_bytes / sizeof(ElfW(Rela))};
    data_relocations = {reinterpret_cast<const ElfW(Rela)*>(data_address),
                        data_bytes / sizeof(ElfW(Rela))};
}

}  // namespace assay::heap
