#include "profile/analyse/globals.hpp"

#include <cxxabi.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <unordered_map>

namespace assay::heap {
namespace {

// Which pages of the objects' variables were in memory.
class Presence {
public:
    Presence(const std::string& mappings, std::uint64_t page) : page_(page) {
        std::istringstream lines(mappings);
        for (std::string line; std::getline(lines, line);) {
            std::istringstream fields(line);
            Mapping one;
            if (fields >> std::hex >> one.begin >> one.end >> one.pages && one.begin < one.end)
                mappings_.push_back(one);
        }
    }
    // Bytes of [begin, end) on pages that were; nothing where none of it is in a mapping that was
    // looked at.
    std::optional<std::uint64_t> resident(std::uint64_t begin, std::uint64_t end) const {
        std::optional<std::uint64_t> found;
        for (const Mapping& one : mappings_) {
            const std::uint64_t from = std::max(begin, one.begin), to = std::min(end, one.end);
            if (from >= to) continue;
            found = found.value_or(0);
            for (std::uint64_t at = from / page_ * page_; at < to; at += page_)
                if (is_there(one, (at - one.begin) / page_))
                    *found += std::min(to, at + page_) - std::max(from, at);
        }
        return found;
    }

private:
    struct Mapping {
        std::uint64_t begin = 0, end = 0;
        std::string pages;
    };
    static bool is_there(const Mapping& one, std::uint64_t page) {
        if (page / 4 >= one.pages.size()) return false;
        const char digit = one.pages[page / 4];
        const int four = digit >= 'a' ? digit - 'a' + 10 : digit - '0';
        return (four >> (page % 4) & 1) != 0;
    }

    std::uint64_t page_;
    std::vector<Mapping> mappings_;
};

std::string demangled(const char* name) {
    int status = 0;
    char* words = abi::__cxa_demangle(name, nullptr, nullptr, &status);
    const std::string text = status == 0 && words != nullptr ? words : name;
    std::free(words);
    return text;
}

// What measures is no part of what is measured.
bool is_ours(const std::string& path) { return path.ends_with("/libassay-heap.so"); }

void measure_sections(Dwfl_Module* module, ObjectData& object) {
    GElf_Addr bias = 0;
    Elf* elf = dwfl_module_getelf(module, &bias);
    for (Elf_Scn* section = nullptr;
         elf != nullptr && (section = elf_nextscn(elf, section)) != nullptr;) {
        GElf_Shdr head;
        if (gelf_getshdr(section, &head) == nullptr || (head.sh_flags & SHF_ALLOC) == 0 ||
            (head.sh_flags & SHF_WRITE) == 0)
            continue;
        if ((head.sh_flags & SHF_TLS) != 0) object.per_thread += head.sh_size;
        else (head.sh_type == SHT_NOBITS ? object.zeroed : object.data) += head.sh_size;
    }
}

bool is_writable(Elf* elf, GElf_Word section) {
    GElf_Shdr head;
    Elf_Scn* found = elf != nullptr ? elf_getscn(elf, section) : nullptr;
    return found != nullptr && gelf_getshdr(found, &head) != nullptr &&
           (head.sh_flags & SHF_WRITE) != 0;
}

void collect(const Symbols::Object& object, const Presence& presence, Globals& into) {
    ObjectData data;
    data.path = object.path;
    measure_sections(object.module, data);
    std::unordered_map<std::uint64_t, bool> seen;  // by address: a variable may have several names
    const int n = dwfl_module_getsymtab(object.module);
    for (int k = 1; k < n; ++k) {
        GElf_Sym symbol;
        GElf_Addr address = 0;
        GElf_Word section = 0;
        Elf* elf = nullptr;
        const char* name =
            dwfl_module_getsym_info(object.module, k, &symbol, &address, &section, &elf, nullptr);
        const int type = GELF_ST_TYPE(symbol.st_info);
        if (name == nullptr || symbol.st_size == 0 || section == SHN_UNDEF ||
            section >= SHN_LORESERVE)
            continue;
        if (type != STT_TLS && (type != STT_OBJECT || !is_writable(elf, section))) continue;
        const bool per_thread = type == STT_TLS;
        if (!seen.try_emplace((per_thread ? symbol.st_value : address) * 2 + per_thread, true)
                 .second)
            continue;
        ++data.variables;
        Variable one;
        one.name = name;
        one.object = object.path;
        one.bytes = symbol.st_size;
        one.per_thread = per_thread;
        const std::uint64_t at = address - object.offline + object.bias;
        if (!per_thread) one.resident = presence.resident(at, at + symbol.st_size);
        into.variables.push_back(std::move(one));
    }
    data.resident = presence.resident(object.begin, object.end);
    if (data.data + data.zeroed + data.per_thread > 0) into.objects.push_back(std::move(data));
}

// Lines of the variables' declarations, where there is debug information; names are still as the
// linker has them.
class Declarations {
public:
    explicit Declarations(std::vector<Variable>& variables) {
        for (Variable& one : variables) {
            wanted_.try_emplace(one.object + '\0' + one.name, &one);
            // One that no other unit can see has no name for the linker: the last part of its own.
            const std::string name = demangled(one.name.c_str());
            wanted_.try_emplace(one.object + '\0' + name.substr(name.rfind(':') + 1), &one);
        }
    }
    void look(const Symbols::Object& object) {
        object_ = object.path;
        Dwarf_Addr bias = 0;
        for (Dwarf_Die* unit = nullptr;
             (unit = dwfl_module_nextcu(object.module, unit, &bias)) != nullptr;)
            below(unit);
    }

private:
    // In namespaces and functions too: these have their own "static" ones.
    void below(Dwarf_Die* scope) {
        Dwarf_Die child;
        if (dwarf_child(scope, &child) != 0) return;
        do {
            switch (dwarf_tag(&child)) {
                case DW_TAG_variable: note(&child); break;
                case DW_TAG_namespace:
                case DW_TAG_module:
                case DW_TAG_subprogram:
                case DW_TAG_lexical_block: below(&child); break;
                default: break;
            }
        } while (dwarf_siblingof(&child, &child) == 0);
    }
    void note(Dwarf_Die* die) {
        Dwarf_Attribute attribute;
        for (const unsigned which : {DW_AT_linkage_name, DW_AT_name}) {
            const char* name = dwarf_formstring(dwarf_attr_integrate(die, which, &attribute));
            if (name == nullptr) continue;
            const auto found = wanted_.find(object_ + '\0' + name);
            Variable* one = found != wanted_.end() ? found->second : nullptr;
            if (one == nullptr || !one->file.empty()) continue;
            if (const char* file = dwarf_decl_file(die); file != nullptr) one->file = file;
            dwarf_decl_line(die, &one->line);
        }
    }

    std::string object_;
    std::unordered_map<std::string, Variable*> wanted_;
};

}  // namespace

Globals find_globals(Symbols& symbols, const std::string& mappings, std::uint64_t page_bytes) {
    const Presence presence(mappings, page_bytes);
    const std::vector<Symbols::Object> objects = symbols.objects();
    Globals found;
    for (const Symbols::Object& one : objects)
        if (!is_ours(one.path)) collect(one, presence, found);
    std::ranges::stable_sort(found.variables, std::greater<>(), &Variable::bytes);
    std::ranges::stable_sort(found.objects, std::greater<>(),
                             [](const ObjectData& o) { return o.data + o.zeroed + o.per_thread; });
    if (found.variables.size() > most_variables) found.variables.resize(most_variables);
    Declarations declarations(found.variables);
    for (const Symbols::Object& one : objects) declarations.look(one);
    for (Variable& one : found.variables) one.name = demangled(one.name.c_str());
    return found;
}

}  // namespace assay::heap
