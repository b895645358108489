// Visits and changes the slots of a loaded object's global offset table (GOT), through which it
// calls functions of other objects.
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
inline constexpr std::uint32_t jump_slot_type = R_AARCH64_JUMP_SLOT,
                               global_data_type = R_AARCH64_GLOB_DAT,
                               pointer_type = R_AARCH64_ABS64;
#else
inline constexpr std::uint32_t jump_slot_type = R_X86_64_JUMP_SLOT,
                               global_data_type = R_X86_64_GLOB_DAT, pointer_type = R_X86_64_64;
#endif

inline std::uint64_t load_slot(const std::uint64_t* slot) {
    return std::atomic_ref(*const_cast<std::uint64_t*>(slot)).load(std::memory_order_acquire);
}

// Calls visit(slot, name, may_be_unbound) for each slot of a function.
template <class Visit>
void for_each_slot(const Dynamic& dynamic, Visit visit) {
    for (const auto& relocations : {dynamic.call_relocations, dynamic.data_relocations})
        for (const ElfW(Rela) & relocation : relocations) {
            const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(relocation.r_info));
            if ((type != jump_slot_type && type != global_data_type && type != pointer_type) ||
                relocation.r_addend != 0)
                continue;
            visit(reinterpret_cast<std::uint64_t*>(dynamic.bias + relocation.r_offset),
                  dynamic.names + dynamic.symbols[ELF64_R_SYM(relocation.r_info)].st_name,
                  type == jump_slot_type);
        }
}

// Stores value_for(slot, name, may_be_unbound) in each slot for which it is not 0. Each change is
// one store, so a concurrent call reaches either function. Returns false and changes nothing if
// `is_new` and the loader has not relocated the object yet.
template <class ValueFor>
bool replace_slots(const dl_phdr_info& object, const Dynamic& dynamic, bool is_new,
                   ValueFor value_for) {
    const Range relro = relro_range(object);
    bool has_slots = false, has_relro_slots = false;
    for_each_slot(dynamic, [&](std::uint64_t* slot, const char* name, bool may_be_unbound) {
        if (value_for(slot, name, may_be_unbound) == 0) return;
        has_slots = true;
        has_relro_slots |= relro.contains(reinterpret_cast<std::uint64_t>(slot));
    });
    if (!has_slots) return true;
    if (is_new && !is_relocated(object)) return false;
    auto* const relro_begin = reinterpret_cast<void*>(relro.begin);
    const std::size_t bytes = relro.end - relro.begin;
    if (has_relro_slots && mprotect(relro_begin, bytes, PROT_READ | PROT_WRITE) != 0) return true;
    for_each_slot(dynamic, [&](std::uint64_t* slot, const char* name, bool may_be_unbound) {
        if (const std::uint64_t value = value_for(slot, name, may_be_unbound); value != 0)
            std::atomic_ref(*slot).store(value, std::memory_order_release);
    });
    if (has_relro_slots) mprotect(relro_begin, bytes, PROT_READ);
    return true;
}

}  // namespace assay::heap
