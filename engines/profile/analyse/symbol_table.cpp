// Reads the functions of an ELF symbol table and sorts them by address.
#include "profile/analyse/symbol_table.hpp"

#include <elf.h>

#include <algorithm>
#include <tuple>

namespace assay::heap {
namespace {

bool is_function(const GElf_Sym& symbol) {
    const int type = GELF_ST_TYPE(symbol.st_info);
    return symbol.st_shndx != SHN_UNDEF &&
           (type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE);
}

int binding_rank(const GElf_Sym& symbol) {
    const int binding = GELF_ST_BIND(symbol.st_info);
    return binding == STB_GLOBAL ? 0 : binding == STB_WEAK ? 1 : 2;
}

}  // namespace

SymbolTable::SymbolTable(Dwfl_Module* module) {
    const int count = dwfl_module_getsymtab(module);
    for (int k = 1; k < count; ++k) {
        GElf_Sym symbol;
        GElf_Addr address = 0;
        const char* name =
            dwfl_module_getsym_info(module, k, &symbol, &address, nullptr, nullptr, nullptr);
        if (name == nullptr || *name == 0 || !is_function(symbol)) continue;
        functions_.push_back({address, address + symbol.st_size, binding_rank(symbol), name});
    }
    // Among symbols at the same address the largest is kept, among equal ones a global one.
    std::ranges::stable_sort(functions_, {}, [](const Function& function) {
        return std::tuple(function.begin, ~function.end, function.binding);
    });
    const auto [first, last] = std::ranges::unique(functions_, {}, &Function::begin);
    functions_.erase(first, last);
    // A symbol of size 0 inside another function is a label.
    std::erase_if(functions_, [covered = GElf_Addr{0}](const Function& function) mutable {
        covered = std::max(covered, function.end);
        return function.end == function.begin && function.begin < covered;
    });
    for (std::size_t k = 0; k + 1 < functions_.size(); ++k)
        if (functions_[k].end == functions_[k].begin) functions_[k].end = functions_[k + 1].begin;
}

// Functions may be nested, so several predecessors are checked.
const char* SymbolTable::find(GElf_Addr address) const {
    constexpr int max_nesting = 16;
    auto next = std::ranges::upper_bound(functions_, address, {}, &Function::begin);
    for (int k = 0; k < max_nesting && next != functions_.begin(); ++k)
        if (--next; address < next->end) return next->name;
    return nullptr;
}

}  // namespace assay::heap
