#include "profile/analyse/names.hpp"

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

int rank_of(const GElf_Sym& symbol) {
    const int binding = GELF_ST_BIND(symbol.st_info);
    return binding == STB_GLOBAL ? 0 : binding == STB_WEAK ? 1 : 2;
}

}  // namespace

Names::Names(Dwfl_Module* module) {
    const int count = dwfl_module_getsymtab(module);
    for (int k = 1; k < count; ++k) {
        GElf_Sym symbol;
        GElf_Addr at = 0;
        const char* name =
            dwfl_module_getsym_info(module, k, &symbol, &at, nullptr, nullptr, nullptr);
        if (name == nullptr || *name == 0 || !is_function(symbol)) continue;
        functions_.push_back({at, at + symbol.st_size, rank_of(symbol), name});
    }
    // Of several names of one function the first: the one that is longest, and known best.
    std::ranges::stable_sort(functions_, {}, [](const Function& one) {
        return std::tuple(one.begin, ~one.end, one.binding);
    });
    const auto [first, last] = std::ranges::unique(functions_, {}, &Function::begin);
    functions_.erase(first, last);
    // What has no size is a function only outside of those that have.
    std::erase_if(functions_, [covered = GElf_Addr{0}](const Function& one) mutable {
        covered = std::max(covered, one.end);
        return one.end == one.begin && one.begin < covered;
    });
    for (std::size_t k = 0; k + 1 < functions_.size(); ++k)
        if (functions_[k].end == functions_[k].begin) functions_[k].end = functions_[k + 1].begin;
}

// One may lie within another.
const char* Names::find(GElf_Addr address) const {
    constexpr int most_inner = 16;
    auto next = std::ranges::upper_bound(functions_, address, {}, &Function::begin);
    for (int k = 0; k < most_inner && next != functions_.begin(); ++k)
        if (--next; address < next->end) return next->name;
    return nullptr;
}

}  // namespace assay::heap
