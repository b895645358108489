// The parts of stack unwinding that depend on the processor: register numbers, the layout of signal
// frames, the tick counter.
//
// All published figures are from x86-64. For aarch64 (Arm's aapcs64 and aadwarf64) a test
// cross-compiles this code and runs it under qemu-user; it has not run on real hardware.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#elif !defined(__aarch64__)
#error "stacks are unwound on x86-64 and aarch64"
#endif

namespace assay::stack {

#if defined(__x86_64__)

// DWARF register numbers. A call pushes the return address.
inline constexpr int reg_bp = 6, reg_sp = 7, reg_ra = 16;
inline constexpr bool call_pushes_return_address = true;
inline constexpr std::int64_t initial_cfa = 8;

// Offsets of the interrupted registers in a signal frame, from the SP in the handler's caller
// (the kernel's struct ucontext: asm/ucontext.h, asm/sigcontext.h).
inline constexpr std::uint64_t signal_bp = 120, signal_sp = 160, signal_pc = 168, signal_lr = 0;

inline std::uint64_t ticks() { return __rdtsc(); }
inline std::uint64_t strip_signature(std::uint64_t return_address) { return return_address; }

#else

// x29, SP and x30. A call leaves the return address in x30; a function may save it anywhere, a leaf
// function saves it nowhere.
inline constexpr int reg_bp = 29, reg_sp = 31, reg_ra = 30;
inline constexpr bool call_pushes_return_address = false;
inline constexpr std::int64_t initial_cfa = 0;

// struct rt_sigframe: siginfo (128 bytes), then ucontext, whose sigcontext begins at offset 176
// with the fault's address.
inline constexpr std::uint64_t signal_x0 = 128 + 176 + 8;
inline constexpr std::uint64_t signal_bp = signal_x0 + 8 * 29, signal_lr = signal_x0 + 8 * 30,
                               signal_sp = signal_x0 + 8 * 31, signal_pc = signal_x0 + 8 * 32;

// The virtual counter, scaled to 1 GHz or more: it mostly runs at 25 to 100 MHz.
inline std::uint64_t ticks() {
    std::uint64_t now, frequency;
    asm volatile("mrs %0, cntvct_el0" : "=r"(now));
    asm("mrs %0, cntfrq_el0" : "=r"(frequency));
    return now << (frequency >= 1'000'000'000
                       ? 0
                       : __builtin_clzll(frequency) - __builtin_clzll(1'000'000'000) + 1);
}

// Removes the signature of pointer authentication from the upper bits.
inline std::uint64_t strip_signature(std::uint64_t return_address) {
    register std::uint64_t x30 asm("x30") = return_address;
    asm("hint #7" : "+r"(x30));  // xpaclri; a no-op on processors without pointer authentication
    return x30;
}

#endif

}  // namespace assay::stack
