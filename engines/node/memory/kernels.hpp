// The loops of the memory measurements, for the widest registers that this processor has.
//
// Each takes `n` doubles a multiple of `kernel_step`, from addresses that are multiples of 64
// bytes. What is read is consumed: the value returned depends on all of it.
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
    double moved;  // bytes moved per byte of one array: a regular store reads its line first
    double (*run)(const Arrays&);
};

// Those of one instruction set ("avx512", "avx2", "sse2", "generic"), empty where the processor has
// not got it; reading first, regular stores last.
std::span<const Kernel> kernels(std::string_view instruction_set);
std::string_view best_instruction_set();
inline std::span<const Kernel> kernels() { return kernels(best_instruction_set()); }

}  // namespace assay::node
