// The loops over the arrays a, b and c of the memory measurements. read: sum of b. write: a = 3.
// copy: a = b. triad: a = b + 3 c (McCalpin's STREAM, with its constant).
//
// One macro generates the x86 loops of each width, so that every instruction set runs the same
// operations: eight registers per iteration, eight independent sums, regular or streaming stores.
#include "node/memory/kernels.hpp"

#include <array>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace assay::node {
namespace {

#if defined(__x86_64__)

// V: register type, W: doubles in it. An iteration uses 8 registers: with W = 8, kernel_step
// doubles.
#define ASSAY_KERNELS(NAME, TARGET, V, W, LOAD, STORE, STREAM, SET, ADD, MUL)                      \
    namespace NAME {                                                                               \
    __attribute__((target(TARGET))) double read(const Arrays& x) {                                 \
        V s[8];                                                                                    \
        for (V& sum : s) sum = SET(0.0);                                                           \
        for (std::size_t i = 0; i < x.n; i += 8 * (W))                                             \
            for (std::size_t k = 0; k < 8; ++k) s[k] = ADD(s[k], LOAD(x.b + i + k * (W)));         \
        alignas(64) double parts[W];                                                               \
        V all = SET(0.0);                                                                          \
        for (V& part : s) all = ADD(all, part);                                                    \
        STORE(parts, all);                                                                         \
        double sum = 0;                                                                            \
        for (double part : parts) sum += part;                                                     \
        return sum;                                                                                \
    }                                                                                              \
    template <bool Streaming>                                                                      \
    __attribute__((target(TARGET), always_inline)) inline void put(double* to, V value) {          \
        if constexpr (Streaming) STREAM(to, value);                                                \
        else STORE(to, value);                                                                     \
    }                                                                                              \
    template <bool Streaming>                                                                      \
    __attribute__((target(TARGET))) double write(const Arrays& x) {                                \
        const V value = SET(3.0);                                                                  \
        for (std::size_t i = 0; i < x.n; i += 8 * (W))                                             \
            for (std::size_t k = 0; k < 8; ++k) put<Streaming>(x.a + i + k * (W), value);          \
        if constexpr (Streaming) _mm_sfence();                                                     \
        return x.a[x.n / 2];                                                                       \
    }                                                                                              \
    template <bool Streaming>                                                                      \
    __attribute__((target(TARGET))) double copy(const Arrays& x) {                                 \
        for (std::size_t i = 0; i < x.n; i += 8 * (W))                                             \
            for (std::size_t k = 0; k < 8; ++k)                                                    \
                put<Streaming>(x.a + i + k * (W), LOAD(x.b + i + k * (W)));                        \
        if constexpr (Streaming) _mm_sfence();                                                     \
        return x.a[x.n / 2];                                                                       \
    }                                                                                              \
    template <bool Streaming>                                                                      \
    __attribute__((target(TARGET))) double triad(const Arrays& x) {                                \
        const V three = SET(3.0);                                                                  \
        for (std::size_t i = 0; i < x.n; i += 8 * (W))                                             \
            for (std::size_t k = 0; k < 8; ++k)                                                    \
                put<Streaming>(x.a + i + k * (W),                                                  \
                               ADD(LOAD(x.b + i + k * (W)), MUL(three, LOAD(x.c + i + k * (W))))); \
        if constexpr (Streaming) _mm_sfence();                                                     \
        return x.a[x.n / 2];                                                                       \
    }                                                                                              \
    constexpr std::array table = {                                                                 \
        Kernel{"read", "none", 1, read},                                                           \
        Kernel{"write", "streaming", 1, write<true>},                                              \
        Kernel{"copy", "streaming", 2, copy<true>},                                                \
        Kernel{"triad", "streaming", 3, triad<true>},                                              \
        Kernel{"write", "regular", 2, write<false>},                                               \
        Kernel{"copy", "regular", 3, copy<false>},                                                 \
        Kernel{"triad", "regular", 4, triad<false>},                                               \
    };                                                                                             \
    }

ASSAY_KERNELS(avx512, "avx512f", __m512d, 8, _mm512_load_pd, _mm512_store_pd, _mm512_stream_pd,
              _mm512_set1_pd, _mm512_add_pd, _mm512_mul_pd)
ASSAY_KERNELS(avx2, "avx2", __m256d, 4, _mm256_load_pd, _mm256_store_pd, _mm256_stream_pd,
              _mm256_set1_pd, _mm256_add_pd, _mm256_mul_pd)
ASSAY_KERNELS(sse2, "sse2", __m128d, 2, _mm_load_pd, _mm_store_pd, _mm_stream_pd, _mm_set1_pd,
              _mm_add_pd, _mm_mul_pd)

#endif

// Plain loops without streaming stores. This file is compiled without the transformation of loops
// into memset or memcpy, which could use streaming stores.
namespace generic {

double read(const Arrays& x) {
    double s[8] = {};
    for (std::size_t i = 0; i < x.n; i += 8)
        for (std::size_t k = 0; k < 8; ++k) s[k] += x.b[i + k];
    double sum = 0;
    for (double part : s) sum += part;
    return sum;
}
double write(const Arrays& x) {
    for (std::size_t i = 0; i < x.n; ++i) x.a[i] = 3.0;
    return x.a[x.n / 2];
}
double copy(const Arrays& x) {
    for (std::size_t i = 0; i < x.n; ++i) x.a[i] = x.b[i];
    return x.a[x.n / 2];
}
double triad(const Arrays& x) {
    for (std::size_t i = 0; i < x.n; ++i) x.a[i] = x.b[i] + 3.0 * x.c[i];
    return x.a[x.n / 2];
}

constexpr std::array table = {
    Kernel{"read", "none", 1, read},
    Kernel{"write", "regular", 2, write},
    Kernel{"copy", "regular", 3, copy},
    Kernel{"triad", "regular", 4, triad},
};

}  // namespace generic
}  // namespace

std::span<const Kernel> kernels(std::string_view instruction_set) {
#if defined(__x86_64__)
    if (instruction_set == "avx512" && __builtin_cpu_supports("avx512f")) return avx512::table;
    if (instruction_set == "avx2" && __builtin_cpu_supports("avx2")) return avx2::table;
    if (instruction_set == "sse2") return sse2::table;
#endif
    if (instruction_set == "generic") return generic::table;
    return {};
}

std::string_view best_instruction_set() {
    for (std::string_view set : {"avx512", "avx2", "sse2"})
        if (!kernels(set).empty()) return set;
    return "generic";
}

}  // namespace assay::node
