// The loops of the memory measurements, for each instruction set.
//
// Each loop works on arrays of `n` doubles, a multiple of `kernel_step`, at addresses that are
// multiples of 64 bytes. The returned value depends on all data that were read, so that the
// compiler removes no load.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace assay::node {

inline constexpr std::size_t kernel_step = 64;  // doubles

struct Arrays {
    double *a, *b, *c;
    std::size_t n;
};

struct Kernel {
    std::string_view operation;  // read, write, copy, triad
    std::string_view stores;     // none, regular, streaming
    // Bytes moved per byte of one array. A regular store also reads its cache line.
    double traffic;
    double (*run)(const Arrays&);
};

// The kernels of one instruction set ("avx512", "avx2", "sse2", "generic"): read first, regular
// stores last. Empty if the processor lacks it.
std::span<const Kernel> kernels(std::string_view instruction_set);
std::string_view best_instruction_set();
inline std::span<const Kernel> kernels() { return kernels(best_instruction_set()); }

}  // namespace assay::node
