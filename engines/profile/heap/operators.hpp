// Hooks operator new and delete of allocators that define their own: jemalloc, tcmalloc, mimalloc.
//
// The operators of libstdc++ call malloc and free, which are hooked. The operators of an allocator
// do not, so they are hooked themselves, if the object that defines them also exports malloc. The
// hook library exports no operators, since these would replace those that a program defines.
// Instead it changes the slots through which objects call the operators (slots.hpp), and the
// operators' addresses in the allocator's symbol table, which determine the binding of unbound
// calls and of objects that are loaded later.
#pragma once

namespace assay::heap {

// Binds the hooks if an allocator defines its own operators. An allocator in the executable is
// excluded, since calls within the executable cannot be hooked. No object may be under relocation.
// Allocates nothing.
void bind_operators();
// Restores the allocator's operators in all objects. May be called at any time.
void unbind_operators();

}  // namespace assay::heap
