#include "profile/heap/exports.hpp"

#include <elf.h>
#include <string.h>

namespace assay::heap {

// DT_GNU_HASH:
//     buckets | first symbol | filter words | filter shift | Bloom filter | first symbol of each
//     bucket | hash of each symbol from the first on; the lowest bit marks the last of a bucket
const ElfW(Sym) * Exports::find_symbol(const char* name) const {
    const Dynamic& t = tables_;
    if (t.hashes == nullptr || t.hashes[0] == 0 || t.hashes[2] == 0) return nullptr;
    std::uint32_t hash = 5381;
    for (const char* c = name; *c != 0; ++c) hash = hash * 33 + static_cast<unsigned char>(*c);
    const std::uint32_t buckets = t.hashes[0], first = t.hashes[1], words = t.hashes[2],
                        shift = t.hashes[3];
    const auto* filter = reinterpret_cast<const std::uint64_t*>(t.hashes + 4);
    const std::uint64_t word = filter[hash / 64 % words];
    if ((word >> (hash % 64) & word >> (hash >> shift & 63) & 1) == 0) return nullptr;
    const auto* bucket = reinterpret_cast<const std::uint32_t*>(filter + words);
    const std::uint32_t* chain = bucket + buckets;
    for (std::uint32_t k = bucket[hash % buckets]; k >= first; ++k) {
        const std::uint32_t symbol_hash = chain[k - first];
        const ElfW(Sym) & symbol = t.symbols[k];
        if ((symbol_hash | 1) == (hash | 1) && symbol.st_shndx != SHN_UNDEF &&
            strcmp(t.names + symbol.st_name, name) == 0)
            return &symbol;
        if ((symbol_hash & 1) != 0) break;
    }
    return nullptr;
}

std::uint64_t Exports::find(const char* name) const {
    const ElfW(Sym)* symbol = find_symbol(name);
    return symbol == nullptr ? 0 : tables_.bias + symbol->st_value;
}

}  // namespace assay::heap
