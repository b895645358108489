// How to step from a frame to its caller on x86-64, taken from the program's own .eh_frame.
//
// A rule is the row of the call-frame table (DWARF 5, 6.4) that holds at one address, reduced to what stack
// traces need: where the caller's stack pointer (the CFA) lies, and where the caller's RBP was saved; the
// return address is always the word below the CFA. Rows that say anything else are `unsupported` and left
// to libunwind. Reading a rule allocates nothing, locks nothing (_dl_find_object, glibc 2.35) and trusts
// nothing: every read stays within the mapped object.
#pragma once

#include <cstdint>

namespace assay::stack {

enum class RuleKind : std::uint8_t {
    from_sp,        // CFA = SP + cfa
    from_bp,        // CFA = BP + cfa
    from_bp_deref,  // CFA = *(BP + cfa): a frame that realigned its stack
    signal,         // the kernel's signal frame: the interrupted registers lie in the ucontext at SP
    last,           // the outermost frame: its return address is undefined
    unsupported,    // a row that is more than the above
    unknown,        // no row: code without call-frame information
};

enum class SavedBp : std::uint8_t { same, at_cfa, at_bp };  // unchanged; *(CFA + bp); *(BP + bp)

struct Rule {
    std::int32_t cfa = 0;
    std::int32_t bp = 0;
    RuleKind kind = RuleKind::unknown;
    SavedBp saved = SavedBp::same;
};

// `address` lies within the instruction in question: of a return address, the byte before it.
Rule read_rule(std::uint64_t address);

// Of a signal frame: where sigcontext keeps the interrupted RBP, RSP and RIP, from the SP in the handler's
// caller (struct ucontext of the kernel's ABI, asm/ucontext.h and asm/sigcontext.h).
inline constexpr std::uint64_t signal_bp = 120, signal_sp = 160, signal_pc = 168;

}  // namespace assay::stack
