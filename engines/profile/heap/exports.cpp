// Looks up symbols in the GNU hash table of a loaded object.
#include "profile/heap/exports.hpp"

#include <elf.h>
#include <string.h>

namespace assay::heap {

// The layout of DT_GNU_HASH:
//     buckets | first symbol | filter words | filter shift | Bloom filter | first symbol of each
//     bucket | hash of each symbol from the first on; the lowest bit marks the last of a bucket
const ElfW(Sym) * Exports::find_symbol(const char* name) const {
    const Dynamic& tables = tables_;
    if (tables.hashes == nullptr || tables.hashes[0] == 0 || tables.hashes[2] == 0) return nullptr;
    std::uint32_t hash = 5381;
    for (const char* c = name; *c != 0; ++c) hash = hash * 33 + static_cast<unsigned char>(*c);
    const std::uint32_t buckets = tables.hashes[0], first_hashed = tables.hashes[1],
                        filter_words = tables.hashes[2], shift = tables.hashes[3];
    const auto* filter = reinterpret_cast<const std::uint64_t*>(tables.hashes + 4);
    const std::uint64_t word = filter[hash / 64 % filter_words];
    if ((word >> (hash % 64) & word >> (hash >> shift & 63) & 1) == 0) return nullptr;
    const auto* bucket = reinterpret_cast<const std::uint32_t*>(filter + filter_words);
    const std::uint32_t* chain = bucket + buckets;
    for (std::uint32_t k = bucket[hash % buckets]; k >= first_hashed; ++k) {
        const std::uint32_t symbol_hash = chain[k - first_hashed];
        const ElfW(Sym) & symbol = tables.symbols[k];
        if ((symbol_hash | 1) == (hash | 1) && symbol.st_shndx != SHN_UNDEF &&
            strcmp(tables.names + symbol.st_name, name) == 0)
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
