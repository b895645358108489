// What differs between processors: registers' numbers, where a signal's frame keeps them, the
// counter of ticks.
//
// x86-64 is what all figures are of. aarch64 (System V ABI of Arm, aapcs64 and aadwarf64) is
// compiled by a test where a cross compiler is, and run under qemu-user; it has not run on a real
// one.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#elif !defined(__aarch64__)
#error "stacks are unwound on x86-64 and aarch64"
#endif

namespace assay::stack {

#if defined(__x86_64__)

// DWARF's numbers; the return address is a word that the call has pushed.
inline constexpr int reg_bp = 6, reg_sp = 7, reg_ra = 16;
inline constexpr bool calls_push = true;
inline constexpr std::int64_t initial_cfa = 8;

// Where a signal's frame has the interrupted registers, from the SP in the handler's caller (struct
// ucontext of the kernel's ABI: asm/ucontext.h, asm/sigcontext.h).
inline constexpr std::uint64_t signal_bp = 120, signal_sp = 160, signal_pc = 168, signal_lr = 0;

inline std::uint64_t ticks() { return __rdtsc(); }
inline std::uint64_t plain(std::uint64_t return_address) { return return_address; }

#else

// x29, SP, and x30, in which a call leaves the return address: a function saves it where it likes,
// a leaf nowhere.
inline constexpr int reg_bp = 29, reg_sp = 31, reg_ra = 30;
inline constexpr bool calls_push = false;
inline constexpr std::int64_t initial_cfa = 0;

// struct rt_sigframe: siginfo (128 bytes), then ucontext, whose sigcontext begins at 176 with the
// fault's address.
inline constexpr std::uint64_t signal_x0 = 128 + 176 + 8;
inline constexpr std::uint64_t signal_bp = signal_x0 + 8 * 29, signal_lr = signal_x0 + 8 * 30,
                               signal_sp = signal_x0 + 8 * 31, signal_pc = signal_x0 + 8 * 32;

// The virtual counter, brought to a gigahertz or more: it mostly runs at 25 to 100 MHz.
inline std::uint64_t ticks() {
    std::uint64_t now, frequency;
    asm volatile("mrs %0, cntvct_el0" : "=r"(now));
    asm("mrs %0, cntfrq_el0" : "=r"(frequency));
    return now << (frequency >= 1'000'000'000
                       ? 0
                       : __builtin_clzll(frequency) - __builtin_clzll(1'000'000'000) + 1);
}

// Without the signature that pointer authentication has put into its upper bits.
inline std::uint64_t plain(std::uint64_t return_address) {
    register std::uint64_t x30 asm("x30") = return_address;
    asm("hint #7" : "+r"(x30));  // xpaclri: nothing, where there is none
    return x30;
}

#endif

}  // namespace assay::stack
