// What instructions tell of a frame where no call-frame information does: of code that a compiler
// has made at run time, and of assembly.
//
// Reads through the kernel, so that what cannot be read does no harm; allocates and locks nothing,
// and keeps errno. On aarch64 nothing is told. What was found is kept as long as other rules are:
// of code that takes the place of other code, it is believed that it keeps a frame pointer, too.
#pragma once

#include <cstdint>

namespace assay::stack {

// Whether the function of this instruction keeps a frame pointer: it begins with "push %rbp; mov
// %rsp,%rbp", as far back as is looked, and ends nowhere in between.
bool keeps_frame_pointer(std::uint64_t address);

// Whether the instruction before this one is a call, as it is before any return address.
bool follows_call(std::uint64_t address);

}  // namespace assay::stack
