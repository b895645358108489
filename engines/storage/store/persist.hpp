// Cache write-back and ordering for stores in persistent memory.
//
// clwb where the processor has it, else clflushopt, else clflush (Intel SDM, volume 1, 11.4 and
// 12). On other processors, which have no persistent memory, it is only a fence.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace assay::storage {

// Receives the write-backs and fences in place of the processor. Tests use it to model a medium
// that loses power.
class PersistObserver {
public:
    virtual void write_back(const void* from, std::size_t bytes) = 0;
    virtual void fence() = 0;

protected:
    ~PersistObserver() = default;
};
inline PersistObserver* persist_observer = nullptr;  // null outside of tests

// write_back() starts the write-back of all cache lines of [from, from + bytes); persist_fence()
// waits for all of them.
#if defined(__x86_64__)
__attribute__((target("clwb"))) inline void write_back_clwb(char* line) { _mm_clwb(line); }
__attribute__((target("clflushopt"))) inline void write_back_clflushopt(char* line) {
    _mm_clflushopt(line);
}

enum class WriteBackInstruction { clflush, clflushopt, clwb };

// The best instruction that the processor has: CPUID leaf 7, EBX bit 24 is clwb, bit 23 clflushopt.
inline WriteBackInstruction write_back_instruction() {
    static const WriteBackInstruction instruction = [] {
        unsigned eax, ebx, ecx, edx;
        if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return WriteBackInstruction::clflush;
        return ebx & (1u << 24)   ? WriteBackInstruction::clwb
               : ebx & (1u << 23) ? WriteBackInstruction::clflushopt
                                  : WriteBackInstruction::clflush;
    }();
    return instruction;
}

inline void write_back(const void* from, std::size_t bytes) {
    if (persist_observer) return persist_observer->write_back(from, bytes);
    const WriteBackInstruction instruction = write_back_instruction();
    auto* line =
        reinterpret_cast<char*>(reinterpret_cast<std::uintptr_t>(from) & ~std::uintptr_t{63});
    for (auto* end = static_cast<const char*>(from) + bytes; line < end; line += 64)
        if (instruction == WriteBackInstruction::clwb) write_back_clwb(line);
        else if (instruction == WriteBackInstruction::clflushopt) write_back_clflushopt(line);
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
