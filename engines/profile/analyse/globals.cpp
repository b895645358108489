// Collects global and thread-local variables from symbol tables and debug information.
#include "profile/analyse/globals.hpp"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <unordered_map>

#include "profile/analyse/demangle.hpp"

namespace assay::heap {
namespace {

// The resident pages of the objects' variables, from a mappings chunk (trace/format.hpp).
class ResidentPages {
public:
    ResidentPages(const std::string& mappings, std::uint64_t page_bytes) : page_bytes_(page_bytes) {
        std::istringstream lines(mappings);
        for (std::string line; std::getline(lines, line);) {
            std::istringstream fields(line);
            Mapping mapping;
            if (fields >> std::hex >> mapping.begin >> mapping.end >> mapping.pages &&
                mapping.begin < mapping.end)
                mappings_.push_back(mapping);
        }
    }
    // Bytes of [begin, end) on resident pages; none if no recorded mapping overlaps the range.
    std::optional<std::uint64_t> resident(std::uint64_t begin, std::uint64_t end) const {
        std::optional<std::uint64_t> total;
        for (const Mapping& mapping : mappings_) {
            const std::uint64_t overlap_begin = std::max(begin, mapping.begin),
                                overlap_end = std::min(end, mapping.end);
            if (overlap_begin >= overlap_end) continue;
            total = total.value_or(0);
            // `first` and `last` are offsets in the mapping. Pages without a digit are not
            // resident.
            const std::uint64_t first = overlap_begin - mapping.begin,
                                last = overlap_end - mapping.begin - 1,
                                listed_pages = 4 * mapping.pages.size();
            for (std::uint64_t k = first / page_bytes_; k <= last / page_bytes_ && k < listed_pages;
                 ++k)
                if (is_resident(mapping, k))
                    *total += std::min(last + 1, (k + 1) * page_bytes_) -
                              std::max(first, k * page_bytes_);
        }
        return total;
    }

private:
    struct Mapping {
        std::uint64_t begin = 0, end = 0;
        std::string pages;
    };
    static bool is_resident(const Mapping& mapping, std::uint64_t page) {
        const char digit = mapping.pages[page / 4];
        const int digit_value = digit >= 'a' ? digit - 'a' + 10 : digit - '0';
        return (digit_value >> (page % 4) & 1) != 0;
    }

    std::uint64_t page_bytes_;
    std::vector<Mapping> mappings_;
};

// Whether an object is the profiler's hook library, which is excluded.
bool is_hooks_library(const std::string& path) { return path.ends_with("/libassay-heap.so"); }

void measure_sections(Dwfl_Module* module, ObjectData& object) {
    GElf_Addr bias = 0;
    Elf* elf = dwfl_module_getelf(module, &bias);
    for (Elf_Scn* section = nullptr;
         elf != nullptr && (section = elf_nextscn(elf, section)) != nullptr;) {
        GElf_Shdr header;
        if (gelf_getshdr(section, &header) == nullptr || (header.sh_flags & SHF_ALLOC) == 0 ||
            (header.sh_flags & SHF_WRITE) == 0)
            continue;
        if ((header.sh_flags & SHF_TLS) != 0) object.tls += header.sh_size;
        else (header.sh_type == SHT_NOBITS ? object.bss : object.data) += header.sh_size;
    }
}

bool is_writable(Elf* elf, GElf_Word section) {
    GElf_Shdr header;
    Elf_Scn* elf_section = elf != nullptr ? elf_getscn(elf, section) : nullptr;
    return elf_section != nullptr && gelf_getshdr(elf_section, &header) != nullptr &&
           (header.sh_flags & SHF_WRITE) != 0;
}

void collect_variables(const Symbols::Object& object, const ResidentPages& resident_pages,
                       Globals& globals) {
    ObjectData object_data;
    object_data.path = object.path;
    measure_sections(object.module, object_data);
    std::unordered_map<std::uint64_t, bool> known_addresses;  // a variable may have several names
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
        if (!known_addresses
                 .try_emplace((per_thread ? symbol.st_value : address) * 2 + per_thread, true)
                 .second)
            continue;
        ++object_data.variables;
        Variable variable;
        variable.name = name;
        variable.object = object.path;
        variable.bytes = symbol.st_size;
        variable.per_thread = per_thread;
        const std::uint64_t address_in_process = address - object.offline + object.bias;
        if (!per_thread)
            variable.resident =
                resident_pages.resident(address_in_process, address_in_process + symbol.st_size);
        globals.variables.push_back(std::move(variable));
    }
    object_data.resident = resident_pages.resident(object.begin, object.end);
    if (object_data.data + object_data.bss + object_data.tls > 0)
        globals.objects.push_back(std::move(object_data));
}

std::string declaring_file(Dwarf_Die* die) {
    const char* file = dwarf_decl_file(die);
    if (file == nullptr) return "";
    Dwarf_Die unit;
    Dwarf_Attribute attribute;
    const bool has_unit = dwarf_diecu(die, &unit, nullptr, nullptr) != nullptr;
    return absolute_source(
        file, has_unit ? dwarf_formstring(dwarf_attr(&unit, DW_AT_comp_dir, &attribute)) : nullptr);
}

// Finds the file and line of the variables' declarations in the debug information. The names of
// `variables` are still mangled.
class Declarations {
public:
    explicit Declarations(std::vector<Variable>& variables) {
        for (Variable& variable : variables) {
            variables_by_name_.try_emplace(variable.object + '\0' + variable.name, &variable);
            // A static variable has no linkage name; its DW_AT_name is the last part of its name.
            const std::string name = demangle(variable.name.c_str());
            variables_by_name_.try_emplace(
                variable.object + '\0' + name.substr(name.rfind(':') + 1), &variable);
        }
    }
    void read(const Symbols::Object& object) {
        object_ = object.path;
        Dwarf_Addr bias = 0;
        for (Dwarf_Die* unit = nullptr;
             (unit = dwfl_module_nextcu(object.module, unit, &bias)) != nullptr;)
            visit(unit);
    }

private:
    // Visits namespaces and functions too, for their static variables.
    void visit(Dwarf_Die* scope) {
        Dwarf_Die child;
        if (dwarf_child(scope, &child) != 0) return;
        do {
            switch (dwarf_tag(&child)) {
                case DW_TAG_variable: read_variable(&child); break;
                case DW_TAG_namespace:
                case DW_TAG_module:
                case DW_TAG_subprogram:
                case DW_TAG_lexical_block: visit(&child); break;
                default: break;
            }
        } while (dwarf_siblingof(&child, &child) == 0);
    }
    void read_variable(Dwarf_Die* die) {
        Dwarf_Attribute attribute;
        for (const unsigned attribute_name : {DW_AT_linkage_name, DW_AT_name}) {
            const char* name =
                dwarf_formstring(dwarf_attr_integrate(die, attribute_name, &attribute));
            if (name == nullptr) continue;
            const auto entry = variables_by_name_.find(object_ + '\0' + name);
            Variable* variable = entry != variables_by_name_.end() ? entry->second : nullptr;
            if (variable == nullptr || !variable->file.empty()) continue;
            variable->file = declaring_file(die);
            dwarf_decl_line(die, &variable->line);
        }
    }

    std::string object_;
    std::unordered_map<std::string, Variable*> variables_by_name_;
};

}  // namespace

Globals find_globals(Symbols& symbols, const std::string& mappings, std::uint64_t page_bytes) {
    const ResidentPages resident_pages(mappings, page_bytes);
    const std::vector<Symbols::Object> objects = symbols.objects();
    Globals globals;
    for (const Symbols::Object& object : objects)
        if (!is_hooks_library(object.path)) collect_variables(object, resident_pages, globals);
    std::ranges::stable_sort(globals.variables, std::greater<>(), &Variable::bytes);
    std::ranges::stable_sort(globals.objects, std::greater<>(),
                             [](const ObjectData& o) { return o.data + o.bss + o.tls; });
    if (globals.variables.size() > max_variables) globals.variables.resize(max_variables);
    Declarations declarations(globals.variables);
    for (const Symbols::Object& object : objects) declarations.read(object);
    for (Variable& object : globals.variables) object.name = demangle(object.name.c_str());
    return globals;
}

}  // namespace assay::heap
