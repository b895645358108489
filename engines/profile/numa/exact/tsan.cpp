// The functions that code compiled with gcc's -fsanitize=thread calls: for ranges, atomic
// operations and those loads and stores that are not counted inline (gcc/inline.s).
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "profile/numa/exact/runtime.hpp"

namespace assay::numa {
namespace {

__attribute__((noinline, cold)) void count_slowly(std::uint64_t address, bool write,
                                                  std::uint64_t pc, std::uint64_t times);

// `pc`: the return address minus 1, which the line table maps to the access.
inline __attribute__((always_inline)) void count(std::uint64_t address, bool write,
                                                 std::uint64_t pc, std::uint64_t times = 1) {
    ThreadCounts* counts = __assay_numa_own;
    const std::uint32_t value = shadow()[address >> 12];
    if (__builtin_expect(counts == nullptr || value == 0 || counts->table == nullptr, 0))
        return count_slowly(address, write, pc, times);
    const unsigned cpu_node = thread_node();
    Entry* entry = &counts->table[table_slot(pc, value, cpu_node)];
    if (__builtin_expect(entry->pc != pc || entry->value != value || entry->thread_node != cpu_node,
                         0))
        return count_slowly(address, write, pc, times);
    (write ? entry->writes : entry->reads) += times;
}

void count_slowly(std::uint64_t address, bool write, std::uint64_t pc, std::uint64_t times) {
    if (__assay_numa_own == nullptr) __assay_numa_own = add_thread();
    ThreadCounts& counts = *__assay_numa_own;
    std::uint32_t value = shadow()[address >> page_bits];
    if (value == 0) value = enter_page(address, write, pc, counts);
    std::uint64_t* counter = find_or_add_counter(counts, pc, value, thread_node(), write);
    if (counter != nullptr) *counter += times;
    else __atomic_fetch_add(&counts.overflow, times, __ATOMIC_RELAXED);
}

// Counts one access per eight bytes.
void count_range(std::uint64_t address, std::uint64_t bytes, bool write, std::uint64_t pc) {
    while (bytes > 0) {
        const std::uint64_t room = 4096 - address % 4096, part = bytes < room ? bytes : room;
        count(address, write, pc, (part + 7) / 8);
        address += part;
        bytes -= part;
    }
}

inline std::uint64_t as_number(const volatile void* address) {
    return reinterpret_cast<std::uint64_t>(address);
}

}  // namespace
}  // namespace assay::numa

using assay::numa::as_number;
using assay::numa::count;
using assay::numa::count_range;

#define PC (reinterpret_cast<std::uint64_t>(__builtin_return_address(0)) - 1)
#define HOOK extern "C" __attribute__((visibility("default")))

#define ACCESSES(n)                                                                          \
    HOOK void __tsan_read##n(void* a) { count(as_number(a), false, PC); }                    \
    HOOK void __tsan_write##n(void* a) { count(as_number(a), true, PC); }                    \
    HOOK void __tsan_unaligned_read##n(void* a) { count(as_number(a), false, PC); }          \
    HOOK void __tsan_unaligned_write##n(void* a) { count(as_number(a), true, PC); }          \
    HOOK void __tsan_volatile_read##n(void* a) { count(as_number(a), false, PC); }           \
    HOOK void __tsan_volatile_write##n(void* a) { count(as_number(a), true, PC); }           \
    HOOK void __tsan_unaligned_volatile_read##n(void* a) { count(as_number(a), false, PC); } \
    HOOK void __tsan_unaligned_volatile_write##n(void* a) { count(as_number(a), true, PC); }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

HOOK void __tsan_read_range(void* a, std::size_t n) { count_range(as_number(a), n, false, PC); }
HOOK void __tsan_write_range(void* a, std::size_t n) { count_range(as_number(a), n, true, PC); }
// The program is linked with --wrap for these, since gcc does not count their accesses.
HOOK void* __wrap_memset(void* destination, int byte, std::size_t n) {
    count_range(as_number(destination), n, true, PC);
    return std::memset(destination, byte, n);
}
HOOK void* __wrap_memcpy(void* destination, const void* source, std::size_t n) {
    count_range(as_number(source), n, false, PC);
    count_range(as_number(destination), n, true, PC);
    return std::memcpy(destination, source, n);
}
HOOK void* __wrap_memmove(void* destination, const void* source, std::size_t n) {
    count_range(as_number(source), n, false, PC);
    count_range(as_number(destination), n, true, PC);
    return std::memmove(destination, source, n);
}
HOOK void __tsan_init() {}
HOOK void __tsan_func_entry(void*) {}
HOOK void __tsan_func_exit() {}
HOOK void __tsan_vptr_update(void** a, void*) { count(as_number(a), true, PC); }
HOOK void __tsan_vptr_read(void** a) { count(as_number(a), false, PC); }
HOOK void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
HOOK void __tsan_atomic_signal_fence(int) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

// All atomics use sequential consistency, which satisfies any weaker order that a program requests.
#define ATOMICS(bits, T)                                                                         \
    HOOK T __tsan_atomic##bits##_load(const volatile T* a, int) {                                \
        count(as_number(a), false, PC);                                                          \
        return __atomic_load_n(a, __ATOMIC_SEQ_CST);                                             \
    }                                                                                            \
    HOOK void __tsan_atomic##bits##_store(volatile T* a, T v, int) {                             \
        count(as_number(a), true, PC);                                                           \
        __atomic_store_n(a, v, __ATOMIC_SEQ_CST);                                                \
    }                                                                                            \
    HOOK T __tsan_atomic##bits##_exchange(volatile T* a, T v, int) {                             \
        count(as_number(a), true, PC);                                                           \
        return __atomic_exchange_n(a, v, __ATOMIC_SEQ_CST);                                      \
    }                                                                                            \
    HOOK int __tsan_atomic##bits##_compare_exchange_strong(volatile T* a, T* c, T v, int, int) { \
        count(as_number(a), true, PC);                                                           \
        return __atomic_compare_exchange_n(a, c, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);  \
    }                                                                                            \
    HOOK int __tsan_atomic##bits##_compare_exchange_weak(volatile T* a, T* c, T v, int, int) {   \
        count(as_number(a), true, PC);                                                           \
        return __atomic_compare_exchange_n(a, c, v, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);   \
    }                                                                                            \
    HOOK T __tsan_atomic##bits##_compare_exchange_val(volatile T* a, T c, T v, int, int) {       \
        count(as_number(a), true, PC);                                                           \
        __atomic_compare_exchange_n(a, &c, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);        \
        return c;                                                                                \
    }                                                                                            \
    FETCH(bits, T, add)                                                                          \
    FETCH(bits, T, sub)                                                                          \
    FETCH(bits, T, and)                                                                          \
    FETCH(bits, T, or)                                                                           \
    FETCH(bits, T, xor)                                                                          \
    FETCH(bits, T, nand)
#define FETCH(bits, T, operation)                                             \
    HOOK T __tsan_atomic##bits##_fetch_##operation(volatile T* a, T v, int) { \
        count(as_number(a), true, PC);                                        \
        return __atomic_fetch_##operation(a, v, __ATOMIC_SEQ_CST);            \
    }
ATOMICS(8, std::uint8_t)
ATOMICS(16, std::uint16_t)
ATOMICS(32, std::uint32_t)
ATOMICS(64, std::uint64_t)
