// Finds hooks and real functions in the loaded objects, and rewrites the global offset tables.
#include "profile/heap/bindings.hpp"

#include <string.h>

#include <atomic>
#include <cstdint>
#include <iterator>

#include "profile/heap/exports.hpp"
#include "profile/heap/hooks.hpp"
#include "profile/heap/object.hpp"
#include "profile/heap/operators.hpp"
#include "profile/heap/slots.hpp"

namespace assay::heap {
namespace {

// Addresses; 0 if not found.
struct Function {
    std::uint64_t hook, real;
};
constexpr std::size_t function_count = std::size(hooked_names);
Function functions[function_count];
std::atomic<bool> is_bound{false};

bool is_hook_library(const dl_phdr_info& object) {
    return object_range(object).contains(reinterpret_cast<std::uint64_t>(functions));
}
bool is_loader(const dl_phdr_info& object) { return object.dlpi_addr == _r_debug.r_ldbase; }

int find_function_index(const char* name) {
    for (std::size_t k = 0; k < function_count; ++k)
        if (*name == *hooked_names[k] && strcmp(name, hooked_names[k]) == 0)
            return static_cast<int>(k);
    return -1;
}

// Whether all hooked names that an object uses are bound to the real functions or to the hooks. If
// not, the object has its own allocator.
bool uses_real_functions(const Dynamic& dynamic, const Range& range, const Range& program_range) {
    bool uses_real = true;
    for_each_slot(dynamic, [&](const std::uint64_t* slot, const char* name, bool may_be_unbound) {
        const int index = find_function_index(name);
        if (index < 0) return;
        const std::uint64_t value = load_slot(slot);
        const Function& function = functions[index];
        if (value == 0 || value == function.real || value == function.hook) return;
        // An unbound slot points into the object's own PLT. A function address that a non-PIE
        // program has taken points into the program's PLT, whose slots are checked as well.
        if ((may_be_unbound && range.contains(value)) || program_range.contains(value)) return;
        uses_real = false;
    });
    return uses_real;
}

Range program_range;  // addresses of the program, the first object

// Replaces `old_address` of each function by `new_address` in an object's slots. Returns false if
// the object is not relocated yet.
bool rebind(const dl_phdr_info& object, std::uint64_t Function::* old_address,
            std::uint64_t Function::* new_address, bool is_new) {
    if (is_hook_library(object) || is_loader(object)) return true;
    const Dynamic dynamic(object);
    if (dynamic.symbols == nullptr) return true;
    const Range range = object_range(object);
    if (new_address == &Function::hook && !uses_real_functions(dynamic, range, program_range))
        return true;
    return replace_slots(
        object, dynamic, is_new,
        [&](const std::uint64_t* slot, const char* name, bool may_be_unbound) -> std::uint64_t {
            const int index = find_function_index(name);
            if (index < 0) return 0;
            const std::uint64_t value = load_slot(slot);
            const Function& function = functions[index];
            if (function.real == 0 || function.hook == 0) return 0;
            const bool is_unbound = new_address == &Function::hook && may_be_unbound &&
                                    value != function.hook && range.contains(value);
            return value == function.*old_address || is_unbound ? function.*new_address : 0;
        });
}

int find_functions_in(dl_phdr_info* object, std::size_t, void* context) {
    auto& position = *static_cast<HookPosition*>(context);
    if (program_range.end == 0) program_range = object_range(*object);
    if (is_loader(*object)) return 0;
    const bool has_hooks = is_hook_library(*object);
    const Exports exports(*object);
    if (has_hooks && functions[0].real == 0) position = HookPosition::preloaded;
    for (std::size_t k = 0; k < function_count; ++k)
        if (std::uint64_t& address = has_hooks ? functions[k].hook : functions[k].real;
            address == 0)
            address = exports.find(hooked_names[k]);
    if (position == HookPosition::no_allocator && functions[0].real != 0)
        position = HookPosition::not_preloaded;
    return 0;
}

std::uint64_t real_address(const char* name) {
    const int index = find_function_index(name);
    return index >= 0 ? functions[index].real : 0;
}

}  // namespace

// Objects are visited in the loader's search order, so the first object that exports a name is the
// one that calls are bound to.
HookPosition find_functions() {
    static auto position = HookPosition::no_allocator;
    if (position != HookPosition::no_allocator) return position;
    dl_iterate_phdr(find_functions_in, &position);
    if (position == HookPosition::not_preloaded) set_real_functions(real_address);
    return position;
}

bool has_own_allocator() { return program_range.contains(functions[0].real); }

void bind_hooks() {
    is_bound.store(true, std::memory_order_release);
    bind_operators();
    dl_iterate_phdr(
        [](dl_phdr_info* object, std::size_t, void*) {
            rebind(*object, &Function::real, &Function::hook, false);
            return 0;
        },
        nullptr);
}

void unbind_hooks() {
    if (!is_bound.exchange(false, std::memory_order_acq_rel)) return;
    unbind_operators();
    dl_iterate_phdr(
        [](dl_phdr_info* object, std::size_t, void*) {
            rebind(*object, &Function::hook, &Function::real, false);
            return 0;
        },
        nullptr);
}

bool bind_hooks_in(const dl_phdr_info& object) {
    return rebind(object, &Function::real, &Function::hook, true);
}

bool has_bound_hooks() { return is_bound.load(std::memory_order_acquire); }

}  // namespace assay::heap
