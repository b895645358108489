#include "profile/heap/exports.hpp"

#include <elf.h>
#include <string.h>

namespace assay::heap {

Exports::Exports(const dl_phdr_info& object) : bias_(object.dlpi_addr) {
    const ElfW(Dyn)* entry = nullptr;
    for (int k = 0; k < object.dlpi_phnum; ++k)
        if (object.dlpi_phdr[k].p_type == PT_DYNAMIC) entry = reinterpret_cast<const ElfW(Dyn)*>(bias_ + object.dlpi_phdr[k].p_vaddr);
    if (entry == nullptr) return;
    // The loader has made addresses of most objects' offsets, and left those of a few as they were.
    const auto at = [this](std::uint64_t value) { return value < bias_ ? bias_ + value : value; };
    for (; entry->d_tag != DT_NULL; ++entry) {
        if (entry->d_tag == DT_GNU_HASH) hashes_ = reinterpret_cast<const std::uint32_t*>(at(entry->d_un.d_ptr));
        if (entry->d_tag == DT_SYMTAB) symbols_ = reinterpret_cast<const ElfW(Sym)*>(at(entry->d_un.d_ptr));
        if (entry->d_tag == DT_STRTAB) names_ = reinterpret_cast<const char*>(at(entry->d_un.d_ptr));
    }
    if (symbols_ == nullptr || names_ == nullptr) hashes_ = nullptr;
}

// The table: buckets, first symbol, words and shift of a filter; the filter; for each bucket its first symbol; and from the
// first symbol on their hashes, whose lowest bit ends a bucket.
std::uint64_t Exports::find(const char* name) const {
    if (hashes_ == nullptr || hashes_[0] == 0 || hashes_[2] == 0) return 0;
    std::uint32_t hash = 5381;
    for (const char* c = name; *c != 0; ++c) hash = hash * 33 + static_cast<unsigned char>(*c);
    const std::uint32_t buckets = hashes_[0], first = hashes_[1], words = hashes_[2], shift = hashes_[3];
    const auto* filter = reinterpret_cast<const std::uint64_t*>(hashes_ + 4);
    const std::uint64_t word = filter[hash / 64 % words];
    if ((word >> (hash % 64) & word >> (hash >> shift & 63) & 1) == 0) return 0;
    const auto* bucket = reinterpret_cast<const std::uint32_t*>(filter + words);
    const std::uint32_t* chain = bucket + buckets;
    for (std::uint32_t k = bucket[hash % buckets]; k >= first; ++k) {
        const std::uint32_t found = chain[k - first];
        const ElfW(Sym)& symbol = symbols_[k];
        if ((found | 1) == (hash | 1) && symbol.st_shndx != SHN_UNDEF && strcmp(names_ + symbol.st_name, name) == 0) return bias_ + symbol.st_value;
        if ((found & 1) != 0) break;
    }
    return 0;
}

}  // namespace assay::heap
