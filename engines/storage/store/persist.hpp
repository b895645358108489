// Cache write-back and ordering for stores in persistent memory.
//
// clwb where the processor has it, else clflushopt, else clflush (Intel SDM, volume 1, 11.4 and
// 12). Other processors have no persistent memory today: there it is a fence only.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace assay::storage {

// A test's model of a medium. It sees the write-backs and fences, in place of the processor.
class PersistObserver {
public:
    virtual void write_back(const void* from, std::size_t bytes) = 0;
    virtual void fence() = 0;

protected:
    ~PersistObserver() = default;
};
inline PersistObserver* persist_observer = nullptr;  // null outside of tests

#if defined(__x86_64__)
__attribute__((target("clwb"))) inline void write_back_clwb(char* line) { _mm_clwb(line); }
__attribute__((target("clflushopt"))) inline void write_back_clflushopt(char* line) {
    _mm_clflushopt(line);
}

inline int write_back_kind() {
    static const int kind = [] {
        unsigned a, b, c, d;
        if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
        return b & (1u << 24) ? 2 : b & (1u << 23) ? 1 : 0;
    }();
    return kind;
}

inline void write_back(const void* from, std::size_t bytes) {
    if (persist_observer) return persist_observer->write_back(from, bytes);
    const int kind = write_back_kind();
    auto* line =
        reinterpret_cast<char*>(reinterpret_cast<std::uintptr_t>(from) & ~std::uintptr_t{63});
    for (auto* end = static_cast<const char*>(from) + bytes; line < end; line += 64)
        if (kind == 2) write_back_clwb(line);
        else if (kind == 1) write_back_clflushopt(line);
        else _mm_clflush(line);
}
inline void persist_fence() {
    if (persist_observer) return persist_observer->fence();
    _mm_sfence();
}
#else
inline void write_back(const void* from, std::size_t bytes) {
    if (persist_observer) persist_observer->write_back(from, bytes);
}
inline void persist_fence() {
    if (persist_observer) persist_observer->fence();
    __sync_synchronize();
}
#endif

}  // namespace assay::storage
