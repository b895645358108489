// Recognises frame pointers and calls from machine instructions, for code without call-frame
// information: code that is generated at run time, and assembly.
//
// Reads go through the kernel (process_vm_readv), so that an unreadable address does no harm.
// The functions neither allocate nor lock, and they preserve errno. On aarch64 both functions
// return false. Results are cached with the other rules: code that replaces other code at the same
// address is assumed to keep a frame pointer, too.
#pragma once

#include <cstdint>

namespace assay::stack {

// Whether the function that contains the instruction keeps a frame pointer: "push %rbp;
// mov %rsp,%rbp" precedes it within 32 KiB, with no function end in between.
bool keeps_frame_pointer(std::uint64_t address);

// Whether the instruction before `address` is a call, which holds for every return address.
bool follows_call(std::uint64_t address);

}  // namespace assay::stack
