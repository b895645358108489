// Frames of code without call-frame information, as its instructions show them: code that was
// generated at run time, and assembly.
//
// Reads go through the kernel (process_vm_readv), so that an unreadable address does no harm.
// Nothing is allocated or locked, and errno is kept. On aarch64 both functions return false.
// Results are cached with the other rules: code that replaces other code at the same address is
// assumed to keep a frame pointer, too.
#pragma once

#include <cstdint>

namespace assay::stack {

// Whether the function of this instruction keeps a frame pointer: within 32 KiB before it comes
// "push %rbp; mov %rsp,%rbp", and no end of a function in between.
bool keeps_frame_pointer(std::uint64_t address);

// Whether the instruction before `address` is a call, as it is before any return address.
bool follows_call(std::uint64_t address);

}  // namespace assay::stack
