#include "profile/record/executable.hpp"

#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string_view>
#include <vector>

namespace assay::heap {
namespace {

constexpr std::uint64_t max_text_bytes = 64 << 20;  // of names in an executable

// A part of a file; empty if the file has not got all of it.
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

std::string on_path(const std::string& program) {
    if (program.find('/') != std::string::npos) return program;
    const char* path = std::getenv("PATH");
    std::istringstream folders(path != nullptr ? path : "/bin:/usr/bin");
    for (std::string folder; std::getline(folders, folder, ':');) {
        std::string file = (folder.empty() ? "." : folder) + "/" + program;
        if (access(file.c_str(), X_OK) == 0) return file;
    }
    return program;
}

// The interpreter of a script, without its arguments.
std::string interpreter_of(std::ifstream& file) {
    std::string line, interpreter;
    file.clear();
    file.seekg(2);
    std::getline(file, line);
    std::istringstream(line) >> interpreter;
    return interpreter;
}

// The names that an executable asks its loader for.
std::string dynamic_names(std::ifstream& file, const std::vector<Elf64_Phdr>& segments) {
    std::uint64_t address = 0, bytes = 0;
    for (const Elf64_Phdr& segment : segments)
        if (segment.p_type == PT_DYNAMIC)
            for (const Elf64_Dyn& entry : read_array<Elf64_Dyn>(
                     file, segment.p_offset, segment.p_filesz / sizeof(Elf64_Dyn))) {
                if (entry.d_tag == DT_STRTAB) address = entry.d_un.d_ptr;
                if (entry.d_tag == DT_STRSZ) bytes = entry.d_un.d_val;
            }
    for (const Elf64_Phdr& segment : segments)
        if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
            address - segment.p_vaddr < segment.p_filesz)
            return read_part(file, segment.p_offset + (address - segment.p_vaddr), bytes);
    return {};
}

}  // namespace

std::optional<std::string> unrecordable(const std::string& program) {
    std::ifstream file(on_path(program), std::ios::binary);
    if (read_part(file, 0, 2) == "#!") {
        const std::string interpreter = interpreter_of(file);
        file.close();
        file.open(interpreter, std::ios::binary);
    }
    const auto header = read_array<Elf64_Ehdr>(file, 0, 1);
    if (header.empty() || std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0 ||
        header[0].e_ident[EI_CLASS] != ELFCLASS64 || header[0].e_phentsize != sizeof(Elf64_Phdr))
        return std::nullopt;
    const auto segments = read_array<Elf64_Phdr>(file, header[0].e_phoff, header[0].e_phnum);
    std::string loader;
    for (const Elf64_Phdr& segment : segments)
        if (segment.p_type == PT_INTERP)
            loader = read_part(file, segment.p_offset, segment.p_filesz);
    if (loader.empty() && !segments.empty())
        return "is statically linked: nothing can be loaded into it";
    if (loader.find("ld-musl") != std::string::npos)
        return "uses the C library musl; recording needs glibc";
    const std::string names = dynamic_names(file, segments);
    for (const auto& [symbol, sanitizer] :
         {std::pair<std::string_view, std::string_view>{"__asan_init", "AddressSanitizer"},
          {"libasan.so", "AddressSanitizer"},
          {"__tsan_init", "ThreadSanitizer"},
          {"libtsan.so", "ThreadSanitizer"},
          {"__msan_init", "MemorySanitizer"}})
        if (names.find(symbol) != std::string::npos)
            return "is built with " + std::string(sanitizer) +
                   ", which replaces the allocator itself; build it without";
    return std::nullopt;
}

namespace {

// jemalloc's, jemalloc's in Rust programs, mimalloc's and tcmalloc's.
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
    static std::map<std::string, std::string> known;  // many processes run the same executable
    const auto [entry, is_new] = known.try_emplace(path);
    if (is_new) entry->second = find_allocator(path);
    return entry->second;
}

}  // namespace assay::heap
