#include "profile/heap/bindings.hpp"

#include <elf.h>
#include <string.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <iterator>

#include "profile/heap/exports.hpp"
#include "profile/heap/hooks.hpp"
#include "profile/heap/object.hpp"

namespace assay::heap {
namespace {

#if defined(__aarch64__)
constexpr std::uint32_t call_slot = R_AARCH64_JUMP_SLOT, data_slot = R_AARCH64_GLOB_DAT,
                        pointer = R_AARCH64_ABS64;
#else
constexpr std::uint32_t call_slot = R_X86_64_JUMP_SLOT, data_slot = R_X86_64_GLOB_DAT,
                        pointer = R_X86_64_64;
#endif

struct Function {
    std::uint64_t hook, real;
};
constexpr std::size_t functions = std::size(hooked);
Function table[functions];
std::atomic<bool> is_bound{false};

bool is_own(const dl_phdr_info& object) {
    return range_of(object).contains(reinterpret_cast<std::uint64_t>(table));
}
bool is_loader(const dl_phdr_info& object) { return object.dlpi_addr == _r_debug.r_ldbase; }

int index_of(const char* name) {
    for (std::size_t k = 0; k < functions; ++k)
        if (*name == *hooked[k] && strcmp(name, hooked[k]) == 0) return static_cast<int>(k);
    return -1;
}

// visit(slot, index, whether it may still be unbound) for each word that stands for a hooked
// function.
template <class Visit>
void for_each_slot(const Dynamic& tables, Visit visit) {
    for (const auto& relocations : {tables.calls, tables.data})
        for (const ElfW(Rela) & one : relocations) {
            const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(one.r_info));
            if ((type != call_slot && type != data_slot && type != pointer) || one.r_addend != 0)
                continue;
            const int index =
                index_of(tables.names + tables.symbols[ELF64_R_SYM(one.r_info)].st_name);
            if (index >= 0)
                visit(reinterpret_cast<std::uint64_t*>(tables.bias + one.r_offset), index,
                      type == call_slot);
        }
}

std::uint64_t in(const std::uint64_t* slot) {
    return std::atomic_ref(*const_cast<std::uint64_t*>(slot)).load(std::memory_order_acquire);
}

// Whether all that is bound by these names in an object is bound to the functions, or to the hooks.
bool shares_functions(const Dynamic& tables, const Range& own, const Range& program) {
    bool shares = true;
    for_each_slot(tables, [&](const std::uint64_t* slot, int index, bool may_be_unbound) {
        const std::uint64_t value = in(slot);
        const Function& function = table[index];
        if (value == 0 || value == function.real || value == function.hook) return;
        // A call that is not bound yet leads into the object's own table of calls. So does, into
        // the program's, the address of a function that a program at fixed addresses has taken;
        // that table's words are looked at themselves.
        if ((may_be_unbound && own.contains(value)) || program.contains(value)) return;
        shares = false;
    });
    return shares;
}

Range program;  // the first object's

// `from` and `to`: which of a function's two addresses is to give way to which. False when the
// object is not ready.
bool exchange(const dl_phdr_info& object, std::uint64_t Function::* from,
              std::uint64_t Function::* to, bool is_new) {
    if (is_own(object) || is_loader(object)) return true;
    const Dynamic tables(object);
    if (tables.symbols == nullptr) return true;
    const Range own = range_of(object), sealed = sealed_in(object);
    if (to == &Function::hook && !shares_functions(tables, own, program)) return true;
    const auto gives_way = [&](const std::uint64_t* slot, int index, bool may_be_unbound) {
        const std::uint64_t value = in(slot);
        const Function& function = table[index];
        if (function.real == 0 || function.hook == 0) return false;
        const bool is_unbound = to == &Function::hook && may_be_unbound && value != function.hook &&
                                own.contains(value);
        return value == function.*from || is_unbound;
    };
    bool any = false, any_sealed = false;
    for_each_slot(tables, [&](std::uint64_t* slot, int index, bool may_be_unbound) {
        if (!gives_way(slot, index, may_be_unbound)) return;
        any = true;
        any_sealed |= sealed.contains(reinterpret_cast<std::uint64_t>(slot));
    });
    if (!any) return true;
    if (is_new && !is_relocated(object)) return false;
    auto* const at = reinterpret_cast<void*>(sealed.begin);
    const std::size_t bytes = sealed.end - sealed.begin;
    if (any_sealed && mprotect(at, bytes, PROT_READ | PROT_WRITE) != 0) return true;
    for_each_slot(tables, [&](std::uint64_t* slot, int index, bool may_be_unbound) {
        if (gives_way(slot, index, may_be_unbound))
            std::atomic_ref(*slot).store(table[index].*to, std::memory_order_release);
    });
    if (any_sealed) mprotect(at, bytes, PROT_READ);
    return true;
}

int find_in(dl_phdr_info* object, std::size_t, void* into) {
    auto& front = *static_cast<Front*>(into);
    if (program.end == 0) program = range_of(*object);
    if (is_loader(*object)) return 0;
    const bool own = is_own(*object);
    const Exports exports(*object);
    if (own && table[0].real == 0) front = Front::in_front;
    for (std::size_t k = 0; k < functions; ++k)
        if (std::uint64_t& address = own ? table[k].hook : table[k].real; address == 0)
            address = exports.find(hooked[k]);
    if (front == Front::none && table[0].real != 0) front = Front::behind;
    return 0;
}

std::uint64_t real_of(const char* name) {
    const int index = index_of(name);
    return index >= 0 ? table[index].real : 0;
}

}  // namespace

// The first object that has a name is whom the others have been bound to: their order is that of
// the loader's search.
Front find_functions() {
    static auto front = Front::none;
    if (front != Front::none) return front;
    dl_iterate_phdr(find_in, &front);
    if (front == Front::behind) resolve_by(real_of);
    return front;
}

void bind_hooks() {
    is_bound.store(true, std::memory_order_release);
    dl_iterate_phdr(
        [](dl_phdr_info* object, std::size_t, void*) {
            exchange(*object, &Function::real, &Function::hook, false);
            return 0;
        },
        nullptr);
}

void unbind_hooks() {
    if (!is_bound.exchange(false, std::memory_order_acq_rel)) return;
    dl_iterate_phdr(
        [](dl_phdr_info* object, std::size_t, void*) {
            exchange(*object, &Function::hook, &Function::real, false);
            return 0;
        },
        nullptr);
}

bool bind_hooks_in(const dl_phdr_info& object) {
    return exchange(object, &Function::real, &Function::hook, true);
}

bool has_bound_hooks() { return is_bound.load(std::memory_order_acquire); }

}  // namespace assay::heap
