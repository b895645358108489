// Searches the symbol table of an executable for functions of known allocators.
#include "profile/record/executable.hpp"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string_view>
#include <vector>

namespace assay::heap {
namespace {

constexpr std::uint64_t max_text_bytes = 64 << 20;  // limit of a string or symbol table

// Reads a part of a file; returns an empty string if the file is shorter.
std::string read_part(std::ifstream& file, std::uint64_t offset, std::uint64_t bytes) {
    if (bytes > max_text_bytes) return {};
    std::string part(bytes, '\0');
    file.clear();
    file.seekg(static_cast<std::streamoff>(offset));
    file.read(part.data(), static_cast<std::streamsize>(bytes));
    return static_cast<std::uint64_t>(file.gcount()) == bytes ? part : std::string();
}

template <class T>
std::vector<T> read_array(std::ifstream& file, std::uint64_t offset, std::uint64_t count) {
    std::vector<T> array;
    const std::string bytes = count > max_text_bytes / sizeof(T)
                                  ? std::string()
                                  : read_part(file, offset, count * sizeof(T));
    if (bytes.empty()) return array;
    array.resize(count);
    std::memcpy(array.data(), bytes.data(), bytes.size());
    return array;
}

// Of jemalloc, jemalloc in Rust programs (two), mimalloc and tcmalloc.
constexpr std::string_view allocator_names[] = {"je_malloc", "_rjem_malloc", "_rjem_je_malloc",
                                                "mi_malloc", "tc_malloc"};

std::string find_allocator(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const auto header = read_array<Elf64_Ehdr>(file, 0, 1);
    if (header.empty() || std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0 ||
        header[0].e_ident[EI_CLASS] != ELFCLASS64 || header[0].e_shentsize != sizeof(Elf64_Shdr))
        return {};
    const auto sections = read_array<Elf64_Shdr>(file, header[0].e_shoff, header[0].e_shnum);
    for (const Elf64_Shdr& section : sections) {
        if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size()) continue;
        const Elf64_Shdr& strings = sections[section.sh_link];
        const std::string names = read_part(file, strings.sh_offset, strings.sh_size);
        for (const Elf64_Sym& symbol :
             read_array<Elf64_Sym>(file, section.sh_offset, section.sh_size / sizeof(Elf64_Sym))) {
            if (symbol.st_shndx == SHN_UNDEF || symbol.st_name >= names.size()) continue;
            const std::string_view name = names.c_str() + symbol.st_name;
            if (std::ranges::find(allocator_names, name) != std::end(allocator_names))
                return std::string(name);
        }
    }
    return {};
}

}  // namespace

const std::string& unhooked_allocator(const std::string& path) {
    // Many processes run the same executable.
    static std::map<std::string, std::string> cache;
    const auto [entry, is_new] = cache.try_emplace(path);
    if (is_new) entry->second = find_allocator(path);
    return entry->second;
}

}  // namespace assay::heap
