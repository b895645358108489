// The words of a loaded object through which it calls the functions of others (its global offset
// table), and how they are changed.
#pragma once

#include <elf.h>
#include <link.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdint>

#include "profile/heap/dynamic.hpp"
#include "profile/heap/object.hpp"

namespace assay::heap {

// Types of the relocations that store a function's address.
#if defined(__aarch64__)
inline constexpr std::uint32_t call_slot = R_AARCH64_JUMP_SLOT, data_slot = R_AARCH64_GLOB_DAT,
                               pointer_slot = R_AARCH64_ABS64;
#else
inline constexpr std::uint32_t call_slot = R_X86_64_JUMP_SLOT, data_slot = R_X86_64_GLOB_DAT,
                               pointer_slot = R_X86_64_64;
#endif

inline std::uint64_t load_slot(const std::uint64_t* slot) {
    return std::atomic_ref(*const_cast<std::uint64_t*>(slot)).load(std::memory_order_acquire);
}

// Calls visit(slot, name, may_be_unbound) for each word that holds a function of that name.
template <class Visit>
void for_each_slot(const Dynamic& dynamic, Visit visit) {
    for (const auto& relocations : {dynamic.calls, dynamic.data})
        for (const ElfW(Rela) & relocation : relocations) {
            const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(relocation.r_info));
            if ((type != call_slot && type != data_slot && type != pointer_slot) ||
                relocation.r_addend != 0)
                continue;
            visit(reinterpret_cast<std::uint64_t*>(dynamic.bias + relocation.r_offset),
                  dynamic.names + dynamic.symbols[ELF64_R_SYM(relocation.r_info)].st_name,
                  type == call_slot);
        }
}

// Stores value_for(slot, name, may_be_unbound) in each word for which it is not 0. Each is one
// store, so a thread that calls at that moment calls either function. False if `is_new` and the
// loader has not relocated the object yet: nothing is changed then.
template <class ValueFor>
bool replace_slots(const dl_phdr_info& object, const Dynamic& dynamic, bool is_new,
                   ValueFor value_for) {
    const Range sealed = relro_of(object);
    bool any_slot = false, any_sealed = false;
    for_each_slot(dynamic, [&](std::uint64_t* slot, const char* name, bool may_be_unbound) {
        if (value_for(slot, name, may_be_unbound) == 0) return;
        any_slot = true;
        any_sealed |= sealed.contains(reinterpret_cast<std::uint64_t>(slot));
    });
    if (!any_slot) return true;
    if (is_new && !is_relocated(object)) return false;
    auto* const sealed_begin = reinterpret_cast<void*>(sealed.begin);
    const std::size_t bytes = sealed.end - sealed.begin;
    if (any_sealed && mprotect(sealed_begin, bytes, PROT_READ | PROT_WRITE) != 0) return true;
    for_each_slot(dynamic, [&](std::uint64_t* slot, const char* name, bool may_be_unbound) {
        if (const std::uint64_t value = value_for(slot, name, may_be_unbound); value != 0)
            std::atomic_ref(*slot).store(value, std::memory_order_release);
    });
    if (any_sealed) mprotect(sealed_begin, bytes, PROT_READ);
    return true;
}

}  // namespace assay::heap
