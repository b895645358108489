// Hooks operator new and delete of an allocator, and binds the hooks in the loaded objects.
#include "profile/heap/operators.hpp"

#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <iterator>

#include "profile/heap/exports.hpp"
#include "profile/heap/object.hpp"
#include "profile/heap/process.hpp"
#include "profile/heap/recording.hpp"
#include "profile/heap/slots.hpp"

namespace assay::heap {
namespace {

using stack::Frame;

enum Operator : std::size_t {
    new_single,
    new_array,
    new_single_nothrow,
    new_array_nothrow,
    new_single_aligned,
    new_array_aligned,
    new_single_aligned_nothrow,
    new_array_aligned_nothrow,
    delete_single,
    delete_array,
    delete_single_sized,
    delete_array_sized,
    delete_single_nothrow,
    delete_array_nothrow,
    delete_single_aligned,
    delete_array_aligned,
    delete_single_sized_aligned,
    delete_array_sized_aligned,
    delete_single_aligned_nothrow,
    delete_array_aligned_nothrow,
    operator_count
};

// Addresses of the allocator's operators; 0 if it has none.
std::uint64_t real_operators[operator_count];

// An operator may call the allocator's malloc by name, or another operator, whose hook then records
// the block. No state is changed during the call, since an exception would leave it changed.
template <class Call>
__attribute__((always_inline)) inline void* record_new(Kind kind, std::size_t size,
                                                       const Frame& caller, Call call) {
    Thread* thread = recording_thread();
    if (thread == nullptr) return call();
    thread->allocated = nullptr;
    const std::uint64_t start = should_time_call(*thread) ? stack::ticks() : 0;
    void* block = call();
    const std::uint64_t time = stack::ticks();
    if (block != nullptr && block != thread->allocated && is_selected(*thread, size))
        record_block(*thread, start, time, kind, block, size, caller);
    thread->allocated = block;
    return block;
}

template <class Call>
__attribute__((always_inline)) inline void record_delete(void* block, const Frame& caller,
                                                         Call call) {
    Thread* thread = block == nullptr ? nullptr : recording_thread();
    if (thread == nullptr || block == thread->deleted || !was_recorded(block)) return call();
    thread->deleted = block;
    record_release(*thread, block, caller, call);
    thread->deleted = nullptr;
}

// `Extra`: an alignment, a std::nothrow_t, or both.
template <Operator op, Kind kind, class... Extra>
__attribute__((noinline)) void* hooked_new(std::size_t size, Extra... extra) {
    const auto real = reinterpret_cast<void* (*)(std::size_t, Extra...)>(real_operators[op]);
    return record_new(kind, size, ASSAY_CALLER(), [=] { return real(size, extra...); });
}

// `Extra`: a size, an alignment, a std::nothrow_t, or some of them.
template <Operator op, class... Extra>
__attribute__((noinline)) void hooked_delete(void* block, Extra... extra) {
    const auto real = reinterpret_cast<void (*)(void*, Extra...)>(real_operators[op]);
    record_delete(block, ASSAY_CALLER(), [=] { real(block, extra...); });
}

struct Hook {
    const char* name;
    std::uint64_t address;
};

template <Operator op, Kind kind, class... Extra>
Hook new_hook(const char* name) {
    return {name, reinterpret_cast<std::uint64_t>(&hooked_new<op, kind, Extra...>)};
}
template <Operator op, class... Extra>
Hook delete_hook(const char* name) {
    return {name, reinterpret_cast<std::uint64_t>(&hooked_delete<op, Extra...>)};
}

// The names as the Itanium C++ ABI mangles them, in the order of Operator.
using Size = std::size_t;
using Alignment = std::size_t;
using Nothrow = const void*;
struct Hooks {
    Hook entries[operator_count] = {
        new_hook<new_single, Kind::malloc>("_Znwm"),
        new_hook<new_array, Kind::malloc>("_Znam"),
        new_hook<new_single_nothrow, Kind::malloc, Nothrow>("_ZnwmRKSt9nothrow_t"),
        new_hook<new_array_nothrow, Kind::malloc, Nothrow>("_ZnamRKSt9nothrow_t"),
        new_hook<new_single_aligned, Kind::memalign, Alignment>("_ZnwmSt11align_val_t"),
        new_hook<new_array_aligned, Kind::memalign, Alignment>("_ZnamSt11align_val_t"),
        new_hook<new_single_aligned_nothrow, Kind::memalign, Alignment, Nothrow>(
            "_ZnwmSt11align_val_tRKSt9nothrow_t"),
        new_hook<new_array_aligned_nothrow, Kind::memalign, Alignment, Nothrow>(
            "_ZnamSt11align_val_tRKSt9nothrow_t"),
        delete_hook<delete_single>("_ZdlPv"),
        delete_hook<delete_array>("_ZdaPv"),
        delete_hook<delete_single_sized, Size>("_ZdlPvm"),
        delete_hook<delete_array_sized, Size>("_ZdaPvm"),
        delete_hook<delete_single_nothrow, Nothrow>("_ZdlPvRKSt9nothrow_t"),
        delete_hook<delete_array_nothrow, Nothrow>("_ZdaPvRKSt9nothrow_t"),
        delete_hook<delete_single_aligned, Alignment>("_ZdlPvSt11align_val_t"),
        delete_hook<delete_array_aligned, Alignment>("_ZdaPvSt11align_val_t"),
        delete_hook<delete_single_sized_aligned, Size, Alignment>("_ZdlPvmSt11align_val_t"),
        delete_hook<delete_array_sized_aligned, Size, Alignment>("_ZdaPvmSt11align_val_t"),
        delete_hook<delete_single_aligned_nothrow, Alignment, Nothrow>(
            "_ZdlPvSt11align_val_tRKSt9nothrow_t"),
        delete_hook<delete_array_aligned_nothrow, Alignment, Nothrow>(
            "_ZdaPvSt11align_val_tRKSt9nothrow_t"),
    };
};

// Creates the table at each use, since a constructor would fill a static table, possibly too late.
Hooks hooks() { return {}; }

bool is_excluded(const dl_phdr_info& object) {
    return object.dlpi_addr == _r_debug.r_ldbase ||
           object_range(object).contains(reinterpret_cast<std::uint64_t>(real_operators));
}

// Changes the address of an exported function in the symbol table, which is in read-only memory.
// Does nothing if that memory cannot be made writable.
void set_symbol_address(const dl_phdr_info& object, const ElfW(Sym) & symbol,
                        std::uint64_t address) {
    const auto symbol_address = reinterpret_cast<std::uint64_t>(&symbol.st_value);
    const auto page_bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    int access = 0;
    for (int k = 0; k < object.dlpi_phnum; ++k)
        if (const ElfW(Phdr) & segment = object.dlpi_phdr[k];
            segment.p_type == PT_LOAD &&
            symbol_address - (object.dlpi_addr + segment.p_vaddr) < segment.p_memsz)
            access = ((segment.p_flags & PF_R) != 0 ? PROT_READ : 0) |
                     ((segment.p_flags & PF_W) != 0 ? PROT_WRITE : 0) |
                     ((segment.p_flags & PF_X) != 0 ? PROT_EXEC : 0);
    const std::uint64_t begin = symbol_address & ~(page_bytes - 1);
    const std::uint64_t bytes =
        ((symbol_address + sizeof symbol.st_value - begin) + page_bytes - 1) & ~(page_bytes - 1);
    auto* const pages = reinterpret_cast<void*>(begin);
    if (access == 0 || mprotect(pages, bytes, access | PROT_WRITE) != 0) return;
    std::atomic_ref(*reinterpret_cast<std::uint64_t*>(symbol_address))
        .store(address - object.dlpi_addr, std::memory_order_release);
    mprotect(pages, bytes, access);
}

// The state of the search for operators. Calls are bound to the first object that defines an
// operator. It is an allocator's operator only if the object also exports malloc.
struct Search {
    bool is_program = true;  // the next object is the executable
    bool is_defined[operator_count] = {};
};

int find_operators_in(dl_phdr_info* object, std::size_t, void* context) {
    auto& search = *static_cast<Search*>(context);
    const bool is_program = search.is_program;
    search.is_program = false;
    if (is_excluded(*object)) return 0;
    const Exports exports(*object);
    const bool is_allocator = !is_program && exports.find("malloc") != 0;
    const Hooks table = hooks();
    for (std::size_t k = 0; k < operator_count; ++k) {
        const ElfW(Sym)* symbol =
            search.is_defined[k] ? nullptr : exports.find_symbol(table.entries[k].name);
        if (symbol == nullptr) continue;
        search.is_defined[k] = true;
        if (!is_allocator) continue;
        real_operators[k] = object->dlpi_addr + symbol->st_value;
        set_symbol_address(*object, *symbol, table.entries[k].address);
    }
    return 0;
}

int restore_operators_in(dl_phdr_info* object, std::size_t, void*) {
    if (is_excluded(*object)) return 0;
    const Exports exports(*object);
    const Hooks table = hooks();
    for (std::size_t k = 0; k < operator_count; ++k)
        if (const ElfW(Sym)* symbol = exports.find_symbol(table.entries[k].name);
            symbol != nullptr && object->dlpi_addr + symbol->st_value == table.entries[k].address)
            set_symbol_address(*object, *symbol, real_operators[k]);
    return 0;
}

// `context`: a bool; true: bind the hooks, false: restore the operators.
int bind_operators_in(dl_phdr_info* object, std::size_t, void* context) {
    const bool to_hooks = *static_cast<const bool*>(context);
    if (is_excluded(*object)) return 0;
    const Dynamic dynamic(*object);
    if (dynamic.symbols == nullptr) return 0;
    const Hooks table = hooks();
    replace_slots(
        *object, dynamic, false,
        [&](const std::uint64_t* slot, const char* name, bool) -> std::uint64_t {
            if (name[0] != '_' || name[1] != 'Z' || (name[2] != 'n' && name[2] != 'd')) return 0;
            for (std::size_t k = 0; k < operator_count; ++k) {
                if (real_operators[k] == 0 || strcmp(name, table.entries[k].name) != 0) continue;
                const std::uint64_t hook = table.entries[k].address, real = real_operators[k];
                return load_slot(slot) != (to_hooks ? real : hook) ? 0 : to_hooks ? hook : real;
            }
            return 0;
        });
    return 0;
}

std::atomic<bool> is_bound{false};

}  // namespace

void bind_operators() {
    if (is_bound.exchange(true, std::memory_order_acq_rel)) return;
    Search search;
    dl_iterate_phdr(find_operators_in, &search);
    bool has_operators = false;
    for (const std::uint64_t real : real_operators) has_operators |= real != 0;
    bool to_hooks = true;
    if (has_operators) dl_iterate_phdr(bind_operators_in, &to_hooks);
}

void unbind_operators() {
    if (!is_bound.exchange(false, std::memory_order_acq_rel)) return;
    bool to_hooks = false;
    dl_iterate_phdr(restore_operators_in, nullptr);
    dl_iterate_phdr(bind_operators_in, &to_hooks);
}

}  // namespace assay::heap
