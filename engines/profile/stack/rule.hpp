// The unwind rule of an address: how to step from its frame to the caller. It comes from the
// program's .eh_frame, or from the machine code if .eh_frame has no entry.
//
// A rule is the row of the call-frame table (DWARF 5, 6.4) that holds at one address, reduced to
// what a stack trace needs: the caller's stack pointer (the CFA), and where the return address and
// the caller's frame pointer (BP: RBP, x29) were saved. All other rows are
// `unsupported`. Reading a rule does not allocate, nor lock from glibc 2.35 on (loaded_object.hpp).
// The tables are not trusted: every read stays within the mapped object.
#pragma once

#include <cstdint>

#include "profile/stack/machine.hpp"

namespace assay::stack {

enum class RuleKind : std::uint8_t {
    from_sp,        // CFA = SP + cfa
    from_bp,        // CFA = BP + cfa
    from_bp_deref,  // CFA = *(BP + cfa): a frame that realigned its stack
    signal,     // the kernel's signal frame: the interrupted registers are in the ucontext at SP
    outermost,  // the outermost frame: its return address is undefined
    from_prologue,  // no row, but the function's prologue sets up a frame pointer: CFA = BP + 16
    unsupported,    // a row that is none of the above
    unknown,        // no row: code without call-frame information
};

enum class SavedBp : std::uint8_t { same, at_cfa, at_bp };  // unchanged; *(CFA + bp); *(BP + bp)

struct Rule {
    static constexpr std::int32_t in_register = INT32_MAX;

    std::int32_t cfa = 0;
    std::int32_t bp = 0;
    std::int32_t ra = -8;  // the return address is *(CFA + ra), or still in the link register
    RuleKind kind = RuleKind::unknown;
    SavedBp saved = SavedBp::same;
};

// Reads the rule of `address`, which is within an instruction: for a return address, pass the byte
// before it.
Rule read_rule(std::uint64_t address);

}  // namespace assay::stack
